//! Shared code of the commands for live captures: signals, messages on standard error, and the continuous analysis
//! ([`monitor`]), by one thread ([`endless`]) or by several ([`workers`]).

pub mod endless;
pub mod monitor;
pub mod workers;

use crate::system;
use anyhow::Result;
use rdmascope_capture::live::{Counters, LiveSource};
use rdmascope_dissector::render::escaped;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Exit status of a second interrupt, which does not wait.
const INTERRUPTED: i32 = 130;

/// Requests by signals.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// Ends the work, with everything received so far.
    pub stop: Arc<AtomicBool>,
    /// To begin a new file.
    pub rotate: Arc<AtomicBool>,
}

impl Signals {
    /// Listens to SIGINT and SIGTERM, which end; of two, the second at once.
    pub fn listen() -> Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, signals.stop.clone())?;
            signal_hook::flag::register(signal, signals.stop.clone())?;
        }
        Ok(signals)
    }

    /// Listens to SIGHUP too, which begins a new file. Windows has no such signal.
    pub fn rotating(self) -> Result<Self> {
        system::on_hangup(&self.rotate)?;
        Ok(self)
    }
}

/// Prints a message on standard error.
pub fn say(text: &str) {
    // a stderr that is closed is no reason to stop
    let _ = writeln!(stderr(), "rdmascope: {}", escaped(text));
}

/// Prints the events of interfaces.
pub fn print_events(source: &mut LiveSource) {
    while let Some((name, event)) = source.event() {
        say(&format!("{name}: {event}"));
    }
}

/// Prints the remarks on interfaces: offloads that change what is captured.
pub fn print_remarks(source: &LiveSource) {
    use rdmascope_capture::Source;
    for interface in source.interfaces() {
        for remark in &interface.comments {
            say(remark);
        }
    }
}

/// Counters of an interface, in one line.
pub fn counted(name: &str, c: &Counters) -> String {
    use crate::report::words::{grouped, size};
    format!(
        "{name}: {} frames captured, {}; dropped {} by the kernel (ring full), {} by the interface",
        grouped(c.delivered),
        size(c.bytes),
        grouped(c.dropped_by_kernel),
        grouped(c.dropped_by_interface),
    )
}

/// A line on a terminal that is written over and over.
#[derive(Debug, Default)]
pub struct Status {
    is_shown: bool,
}

impl Status {
    /// Replaces the text of the line.
    pub fn show(&mut self, text: &str) {
        if stderr().is_terminal() {
            self.is_shown = true;
            let _ = write!(stderr(), "\r\x1b[K{text}");
            let _ = stderr().flush();
        }
    }

    /// Empties the line.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
