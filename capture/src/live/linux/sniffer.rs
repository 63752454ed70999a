//! Frames that an RDMA card moves past the kernel: the verbs sniffer as a place of a live source.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use rdmascope_verbs::{Clock, Sniffer, SnifferOptions, Verbs};

use super::filter::{Begins, Instruction, run};
use super::{Counters, Event, Frame, Live, Options, Ready};
use crate::LinkType;
use crate::error::{Error, Problem, Result};
use crate::metadata::{self, Interface};

/// A port of an RDMA card.
pub(super) struct Card {
    name: String,
    sniffer: Sniffer,
    interface: Interface,
    /// The filter, which is run here since no kernel does; `None` if frames do not begin with Ethernet.
    program: Option<Vec<Instruction>>,
    snap: usize,
    /// The current frame: a copy, so that the card gets its buffer back.
    frame: Vec<u8>,
    wire_len: u32,
    time_ns: i64,
    counters: Counters,
}

impl Card {
    /// Opens `mlx5_0`, or another port of it: `mlx5_0:2`.
    pub(super) fn open(name: &str, options: &Options) -> Result<Card> {
        let failed = |e| Error::new(name, Problem::Verbs(e));
        let (device, port) = name.split_once(':').unwrap_or((name, "1"));
        let Ok(port) = port.parse() else {
            return Err(Error::new(
                name,
                Problem::Unsupported(format!("\"{port}\" is not a port of an RDMA device, such as 1")),
            ));
        };
        let verbs = match &options.verbs {
            Some(folder) => Verbs::load_from(folder),
            None => Verbs::load(),
        };
        let sniffer =
            Sniffer::open(verbs.map_err(failed)?, device, SnifferOptions { port, ..SnifferOptions::default() })
                .map_err(failed)?;
        let link_type = if sniffer.is_ethernet() { LinkType::ETHERNET } else { LinkType::INFINIBAND };
        let mut interface = Interface::new(link_type);
        interface.name = Some(name.to_owned());
        interface.clock = metadata::Clock::NANOSECONDS;
        interface.snap_len = options.snap_len;
        interface.filter = sniffer.is_ethernet().then(|| options.filter.to_string());
        let clock = match sniffer.clock() {
            Clock::Card => "times are the card's",
            Clock::CardCounter => "times are the card's counter, compared with the system clock every second",
            Clock::System => "times are those of the system clock when a frame was read: the card gives none",
        };
        interface.comments.push(format!("{name}: verbs sniffer; {clock}"));
        let program = match link_type {
            LinkType::ETHERNET => options.filter.program(Begins::Ethernet, options.snap(), false),
            _ => None,
        };
        Ok(Card {
            name: name.to_owned(),
            sniffer,
            interface,
            program,
            snap: options.snap() as usize,
            frame: Vec::new(),
            wire_len: 0,
            time_ns: 0,
            counters: Counters::default(),
        })
    }
}

impl Live for Card {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn advance(&mut self) -> Result<Ready> {
        loop {
            let packet = self.sniffer.next(Duration::ZERO).map_err(|e| Error::new(&self.name, Problem::Verbs(e)))?;
            let Some(packet) = packet else { return Ok(Ready::NotYet) };
            if self.program.as_ref().is_some_and(|p| run(p, packet.bytes, |_| 0) == 0) {
                continue;
            }
            self.frame.clear();
            self.frame.extend_from_slice(packet.bytes.get(..self.snap).unwrap_or(packet.bytes));
            self.wire_len = packet.bytes.len() as u32;
            self.time_ns = packet.time_ns;
            self.counters.accepted += 1;
            self.counters.delivered += 1;
            self.counters.bytes += u64::from(self.wire_len);
            return Ok(Ready::Frame);
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
        Some(self.sniffer.as_fd().as_raw_fd())
    }

    fn watch(&mut self) -> Option<Event> {
        None
    }

    fn counters(&mut self) -> Counters {
        let statistics = self.sniffer.statistics();
        self.counters.dropped_by_interface = statistics.too_long + statistics.out_of_buffer.unwrap_or(0);
        self.counters
    }
}
