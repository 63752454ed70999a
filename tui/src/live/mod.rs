//! Live capture for the commands: interfaces opened, privileges given up, signals heard.
//!
//! | file | what |
//! | --- | --- |
//! | [`attach`] | captures that others make, followed |
//! | [`files`] | what is captured, as a file or a series of files |
//! | [`monitor`] | the analysis of what is captured: without an end, with lines now and then, with metrics |

pub(crate) mod attach;
pub(crate) mod files;
pub(crate) mod monitor;

use crate::cli::LiveArgs;
use anyhow::{Context, Result, anyhow};
use rdmascope_capture::live::{self, Counters, Dropped, Filter, LiveSource, drop_privileges};
use rdmascope_dissector::render::escaped;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Exit status of a second interrupt, which does not wait.
const INTERRUPTED: i32 = 130;

/// What signals ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// To end with what came by now.
    pub(crate) stop: Arc<AtomicBool>,
    /// To begin a new file.
    pub(crate) rotate: Arc<AtomicBool>,
}

impl Signals {
    /// Listens to SIGINT and SIGTERM, which end; of two, the second at once.
    pub(crate) fn listen() -> Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, signals.stop.clone())?;
            signal_hook::flag::register(signal, signals.stop.clone())?;
        }
        Ok(signals)
    }

    /// Listens to SIGHUP too, which begins a new file.
    pub(crate) fn rotating(self) -> Result<Self> {
        signal_hook::flag::register(SIGHUP, self.rotate.clone())?;
        Ok(self)
    }
}

/// Opens the interfaces and gives privileges up. There must be no other thread yet.
pub(crate) fn open(args: &LiveArgs, stop: Arc<AtomicBool>) -> Result<(LiveSource, Dropped)> {
    let mut options = live::Options::new();
    if let Some(text) = &args.capture_filter {
        options.filter = text.parse::<Filter>().map_err(|e| anyhow!("capture filter: {e}"))?;
    }
    options.snap_len = args.snapshot_length.unwrap_or(0);
    options.ring_bytes = args.buffer_size.unwrap_or(live::RING_BYTES >> 20) << 20;
    options.sockets = args.sockets.unwrap_or(1);
    options.promiscuous = !args.no_promiscuous;
    options.libpcap = args.libpcap;
    let mut source = live::open(&args.interfaces, &options, stop)?;
    // what counters grow is counted from here
    source.sample_hardware(&args.rdma_root);
    let dropped = drop_privileges(args.user.as_deref()).context("giving up root")?;
    Ok((source, dropped))
}

/// What is captured where, and as whom, in one line.
pub(crate) fn opening_line(args: &LiveArgs, source: &LiveSource, dropped: &Dropped) -> String {
    use rdmascope_capture::Source;
    let names: Vec<&str> = source.interfaces().iter().filter_map(|i| i.name.as_deref()).collect();
    let filter = args.capture_filter.as_deref().unwrap_or("rdma");
    let whom = match dropped {
        Dropped::User(name) => format!("; root was given up for {name}"),
        Dropped::KeptRoot if args.user.is_none() => "; as root: --user NAME gives that up".to_owned(),
        Dropped::KeptRoot | Dropped::Nothing => String::new(),
        Dropped::Capabilities => "; capabilities were given up".to_owned(),
    };
    format!("capturing from {}, filter \"{filter}\"{whom}", names.join(", "))
}

/// Says something beside the output.
pub(crate) fn say(text: &str) {
    // a stderr that is closed is no reason to stop
    let _ = writeln!(stderr(), "rdmascope: {}", escaped(text));
}

/// Tells what happened to interfaces.
pub(crate) fn tell_events(source: &mut LiveSource) {
    while let Some((name, event)) = source.event() {
        say(&format!("{name}: {event}"));
    }
}

/// The remarks on interfaces: offloads that change what is seen.
pub(crate) fn tell_remarks(source: &LiveSource) {
    use rdmascope_capture::Source;
    for interface in source.interfaces() {
        for remark in &interface.comments {
            say(remark);
        }
    }
}

/// What an interface counted, in one line.
pub(crate) fn counted(name: &str, c: &Counters) -> String {
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
pub(crate) struct Status {
    is_shown: bool,
}

impl Status {
    pub(crate) fn show(&mut self, text: &str) {
        if stderr().is_terminal() {
            self.is_shown = true;
            let _ = write!(stderr(), "\r\x1b[K{text}");
            let _ = stderr().flush();
        }
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
