//! `rdmascope capture`: writes frames from interfaces into files, and reports losses.

use crate::cli::{Capture, CaptureLimit, Color};
use crate::live::files::{Files, Limits, SavedFrames, is_broken_pipe, is_full_disk};
use crate::live::monitor::{HARDWARE_EVERY, Metrics, Monitor};
use crate::live::{self, Signals, Status, say};
use crate::report::words::{count, grouped, size};
use crate::stdout::Out;
use anyhow::{Result, bail};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::report::Quiet;
use rdmascope_capture::live::{LiveSource, headers_only, list};
use rdmascope_capture::{Decapsulator, Source};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at clocks and counters.
const TICK: Duration = Duration::from_millis(250);
/// Frames between two looks at the clock.
const LOOK_EVERY: u32 = 256;
/// The disk is full.
const FULL: u8 = 2;

pub(super) fn run(args: &Capture, color: Color) -> Result<ExitCode> {
    if args.list {
        return show_list(&args.live.rdma_root, color);
    }
    if args.live.interfaces.is_empty() {
        bail!("capture needs an interface: -i IFACE (rdmascope capture -D lists them)");
    }
    let signals = Signals::listen()?.rotating()?;
    let threads = if args.metrics.is_some() { super::threads(args.threads) } else { 1 };
    let (source, dropped) = live::open(&args.live, signals.stop.clone(), threads)?;
    if !args.quiet {
        say(&live::opening_line(&args.live, &source, &dropped));
        live::print_remarks(&source);
    }
    let mut limits = Limits::default();
    for limit in &args.ring {
        match *limit {
            CaptureLimit::Bytes(n) => limits.bytes = Some(n),
            CaptureLimit::Time(t) => limits.time = Some(t),
            CaptureLimit::Files(n) => limits.files = Some(n as usize),
            CaptureLimit::Packets(_) => {}
        }
    }
    if limits.files.is_some() && limits.bytes.is_none() && limits.time.is_none() {
        bail!("-b files:N needs -b filesize:MB or -b duration:S: they say when a file is full");
    }
    let files = args
        .write
        .as_deref()
        .map(|path| Files::create(path, limits, source.metadata(), args.force.existing()))
        .transpose()?;
    // reported before anything else waits: an address that is not available
    let analysis = match args.metrics {
        Some(address) => {
            let options = Options { check_crc: !args.no_crc, ..Options::default() };
            let monitor = Monitor::new(options, Quiet, &args.live.interfaces, threads);
            Some((monitor, Metrics::start(address, &args.live.rdma_root)?))
        }
        None => None,
    };
    let begun = Instant::now();
    let decapsulator = args.decapsulate.then(|| Decapsulator::new(source.interfaces()));
    let status = Status::default();
    Running {
        analysis,
        args,
        signals,
        source,
        decapsulator,
        files,
        begun,
        frames: 0,
        since: 0,
        ticked: begun,
        looked: begun,
        status,
    }
    .run()
}

struct Running<'a> {
    args: &'a Capture,
    signals: Signals,
    source: LiveSource,
    decapsulator: Option<Decapsulator>,
    files: Option<Files>,
    analysis: Option<(Monitor<Quiet>, Metrics)>,
    begun: Instant,
    frames: u64,
    /// Frames since the clock was looked at.
    since: u32,
    ticked: Instant,
    /// When the counters of RDMA devices were looked at.
    looked: Instant,
    status: Status,
}

/// The reason for which a capture ended.
enum CaptureEnd {
    /// It was stopped, or a limit was reached.
    Done,
    /// The reader of the output has gone.
    Unread,
    Full(SavedFrames),
}

impl Running<'_> {
    fn run(mut self) -> Result<ExitCode> {
        let mut end = self.capture();
        if let Ok(CaptureEnd::Done) = end
            && let Some(other) = self.hardware()?
        {
            end = Ok(other);
        }
        self.status.clear();
        let counters = self.source.counters();
        let end = match end {
            Ok(CaptureEnd::Done) => match self.files.as_mut().map_or(Ok(()), |f| f.finish(&counters)) {
                Ok(()) => CaptureEnd::Done,
                Err(e) => self.failed(e)?,
            },
            other => other?,
        };
        if !self.args.quiet {
            live::print_events(&mut self.source);
            for (interface, counted) in self.source.interfaces().to_vec().iter().zip(&counters) {
                say(&live::counted(interface.name.as_deref().unwrap_or("?"), counted));
                if counted.checksum_not_ready > 0 {
                    say(&format!(
                        "{}: {} were captured before the hardware wrote their checksums",
                        interface.name.as_deref().unwrap_or("?"),
                        count(counted.checksum_not_ready, "frame")
                    ));
                }
            }
            if let Some(files) = &self.files {
                let place = match files.begun() {
                    _ if files.is_stdout() => "standard output".to_owned(),
                    1 => files.path().display().to_string(),
                    n => format!("{n} files, the last {}", files.path().display()),
                };
                say(&format!("{} written to {place}", count(files.written, "frame")));
            }
            if counters.iter().all(|counted| counted.accepted == 0) {
                let filter = self.args.live.capture_filter.as_deref().unwrap_or("rdma");
                say(&format!(
                    "no frame passed the filter \"{filter}\": -D says what each interface shows, -f everything takes \
                        all of it"
                ));
            }
        }
        match end {
            CaptureEnd::Done | CaptureEnd::Unread => Ok(ExitCode::SUCCESS),
            CaptureEnd::Full(rescued) => {
                say(&format!(
                    "{}: the disk is full; {} kept in it, {} captured after them are lost",
                    rescued.path.display(),
                    count(rescued.frames, "frame"),
                    grouped(rescued.lost),
                ));
                Ok(ExitCode::from(FULL))
            }
        }
    }

    /// Outcome of a failed write: the end of the capture, or an error.
    fn failed(&mut self, e: rdmascope_capture::Error) -> Result<CaptureEnd> {
        match &mut self.files {
            Some(_) if is_broken_pipe(&e) => Ok(CaptureEnd::Unread),
            Some(files) if is_full_disk(&e) && !files.is_stdout() => {
                let counters = self.source.counters();
                Ok(CaptureEnd::Full(files.rescue(&counters)?))
            }
            _ => Err(e.into()),
        }
    }

    fn capture(&mut self) -> Result<CaptureEnd> {
        loop {
            if let Some((monitor, _)) = &mut self.analysis
                && let Some(port) = monitor.port()
            {
                self.source.learn_tcp_port(port)?;
            }
            let is_frame = match &mut self.analysis {
                Some((monitor, _)) => monitor.advance(&mut self.source)?,
                None => self.source.advance()?,
            };
            if is_frame {
                self.frames += 1;
                self.since += 1;
                if let Some((monitor, _)) = &mut self.analysis {
                    monitor.frame(&self.source.record(), self.source.interfaces());
                }
                if let Some(files) = &mut self.files {
                    let mut record = self.source.record();
                    if let Some(decapsulator) = &mut self.decapsulator {
                        record = decapsulator.frame(record, self.source.interfaces());
                        if let Err(e) = files.catch_up(decapsulator.interfaces()) {
                            return self.failed(e);
                        }
                    }
                    let record = if self.args.headers_only { headers_only(record) } else { record };
                    if let Err(e) = files.write(&record) {
                        return self.failed(e);
                    }
                    if files.is_full()
                        && let Some(end) = self.rotate()?
                    {
                        return Ok(end);
                    }
                }
                if self.args.count.is_some_and(|n| self.frames >= n) || self.has_reached(Instant::now, false) {
                    return Ok(CaptureEnd::Done);
                }
            }
            if !is_frame || self.since >= LOOK_EVERY {
                self.since = 0;
                if let Some((monitor, metrics)) = &mut self.analysis {
                    metrics.serve(monitor, &mut self.source);
                }
                if self.ticked.elapsed() >= TICK
                    && let Some(end) = self.tick()?
                {
                    return Ok(end);
                }
                if self.source.is_over() || self.has_reached(Instant::now, true) {
                    return Ok(CaptureEnd::Done);
                }
            }
        }
    }

    /// True if one of the limits of -a is reached. Limits on time are checked only with `with_time`.
    fn has_reached(&self, now: impl Fn() -> Instant, with_time: bool) -> bool {
        self.args.autostop.iter().any(|limit| match *limit {
            CaptureLimit::Packets(n) => self.frames >= n,
            CaptureLimit::Bytes(n) => self.files.as_ref().is_some_and(|f| f.bytes() >= n),
            CaptureLimit::Files(n) => self.files.as_ref().is_some_and(|f| f.begun() > n),
            CaptureLimit::Time(t) => with_time && now().duration_since(self.begun) >= t,
        })
    }

    fn rotate(&mut self) -> Result<Option<CaptureEnd>> {
        // -a files:N ends with the last of them
        let most = self.args.autostop.iter().find_map(|l| if let CaptureLimit::Files(n) = l { Some(*n) } else { None });
        let counters = self.source.counters();
        let Some(files) = &mut self.files else { return Ok(None) };
        if most.is_some_and(|n| files.begun() >= n) {
            return Ok(Some(CaptureEnd::Done));
        }
        match files.rotate(&counters) {
            Ok(()) => Ok(None),
            Err(e) => match e.downcast::<rdmascope_capture::Error>() {
                Ok(e) => self.failed(e).map(Some),
                Err(e) => Err(e),
            },
        }
    }

    /// Records the changes of RDMA device counters.
    fn hardware(&mut self) -> Result<Option<CaptureEnd>> {
        self.looked = Instant::now();
        let changed = self.source.sample_hardware(&self.args.live.rdma_root);
        if changed.is_empty() || self.files.is_none() {
            return Ok(None);
        }
        let (all, counters) = (self.source.metadata().hardware.last(), self.source.counters());
        let Some(files) = &mut self.files else { return Ok(None) };
        match files.hardware(&changed, all, &counters) {
            Ok(()) => Ok(None),
            Err(e) => self.failed(e).map(Some),
        }
    }

    /// A few times a second.
    fn tick(&mut self) -> Result<Option<CaptureEnd>> {
        self.ticked = Instant::now();
        if let Some((monitor, _)) = &mut self.analysis {
            monitor.expire();
        }
        if self.signals.rotate.swap(false, Ordering::Relaxed)
            && let Some(end) = self.rotate()?
        {
            return Ok(Some(end));
        }
        let full = self.files.as_ref().is_some_and(Files::is_full);
        if full && let Some(end) = self.rotate()? {
            return Ok(Some(end));
        }
        if self.looked.elapsed() >= HARDWARE_EVERY
            && let Some(end) = self.hardware()?
        {
            return Ok(Some(end));
        }
        if let Some(files) = &mut self.files
            && let Err(e) = files.flush()
        {
            return self.failed(e).map(Some);
        }
        if !self.args.quiet {
            let counters = self.source.counters();
            let dropped: u64 = counters.iter().map(|c| c.dropped()).sum();
            let bytes: u64 = counters.iter().map(|c| c.bytes).sum();
            if self.source.metadata().interfaces.is_empty() {
                return Ok(None);
            }
            self.status.show(&format!(
                "{} frames, {}, {} dropped",
                grouped(self.frames),
                size(bytes),
                grouped(dropped)
            ));
            let mut warned = false;
            while let Some((name, event)) = self.source.event() {
                if !std::mem::replace(&mut warned, true) {
                    self.status.clear();
                }
                say(&format!("{name}: {event}"));
            }
        }
        Ok(None)
    }
}

fn show_list(rdma_root: &Path, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    let all = list(rdma_root);
    let name = all.iter().map(|l| l.name.len()).max().unwrap_or(0);
    let kind = all.iter().map(|l| l.kind.len()).max().unwrap_or(0);
    for listed in &all {
        let state = if listed.is_up { "up  " } else { "down" };
        write!(out.buffer, "{:name$}  {state}  {:kind$}  {}", listed.name, listed.kind, listed.sees)?;
        if let Some(cannot) = &listed.cannot {
            write!(out.buffer, "; not now: {cannot}")?;
        }
        out.buffer.push(b'\n');
    }
    if all.is_empty() {
        writeln!(out.buffer, "nothing to capture from: this system has no interface")?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
