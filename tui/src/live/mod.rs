//! Live capture for the commands: interfaces opened and privileges given up.
//!
//! | file | content |
//! | --- | --- |
//! | [`attach`] | following captures that other programs write |
//! | [`files`] | output of a capture, as a file or a series of files |
//! | [`rights`] | the copy of this program that may capture |
//! | [`monitor`] | the continuous analysis of a live capture, with lines at an interval and metrics |

pub(crate) mod attach;
pub(crate) mod files;
mod rights;

pub(crate) use rdmascope_report::live::{Signals, Status, counted, monitor, print_events, print_remarks, say};

use crate::cli::LiveArgs;
use anyhow::{Context, Result, anyhow};
use rdmascope_capture::live::{self, Dropped, Filter, LiveSource, drop_privileges};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Opens the interfaces and drops privileges. There must be no other thread yet. An interface with several queues gets
/// as many sockets as there will be threads that analyze.
pub(crate) fn open(args: &LiveArgs, stop: Arc<AtomicBool>, threads: usize) -> Result<(LiveSource, Dropped)> {
    rights::take();
    let mut options = live::Options::new();
    if let Some(text) = &args.capture_filter {
        options.filter = text.parse::<Filter>().map_err(|e| anyhow!("capture filter: {e}"))?;
    }
    options.snap_len = args.snapshot_length.unwrap_or(0);
    options.ring_bytes = args.buffer_size.unwrap_or(live::RING_BYTES >> 20) << 20;
    (options.sockets, options.by_queues) = (args.sockets.unwrap_or(threads), args.sockets.is_none());
    options.promiscuous = !args.no_promiscuous;
    options.libpcap = args.libpcap;
    let mut source = live::open(&args.interfaces, &options, stop)?;
    // increases of counters are counted from here
    source.sample_hardware(&args.rdma_root);
    let dropped = drop_privileges(args.user.as_deref()).context("giving up root")?;
    Ok((source, dropped))
}

/// One line that names the interfaces, the filter and the rights that were given up.
pub(crate) fn opening_line(args: &LiveArgs, source: &LiveSource, dropped: &Dropped) -> String {
    use rdmascope_capture::Source;
    let names: Vec<&str> = source.interfaces().iter().filter_map(|i| i.name.as_deref()).collect();
    let filter = args.capture_filter.as_deref().unwrap_or("rdma");
    let whom = match dropped {
        Dropped::User(name) => format!("; root was given up for {name}"),
        Dropped::KeptRoot if args.user.is_none() => "; runs as root, --user NAME drops root privileges".to_owned(),
        Dropped::KeptRoot | Dropped::Nothing => String::new(),
        Dropped::Capabilities => "; capabilities were given up".to_owned(),
    };
    format!("capturing from {}, filter \"{filter}\"{whom}", names.join(", "))
}
