//! `rdmascope analyze FILE…` and `-i IFACE`: follows every connection of the captures and reports problems.

use crate::analysis::{self, Analysis, InputSummary, Run, SMALL};
use crate::cli::{self, Analyze, Color, FailOn, ReportFormat, Verdicts};
use crate::input;
use crate::live::monitor::Watch;
use crate::live::{Signals, say};
use crate::report::words::Paint;
use crate::report::{Collector, Manual, ReportData, Wanted, html, json, text};
use crate::stdout::Out;
use anyhow::{Context, Result};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::finding::Severity;
use rdmascope_analyzer::op::At;
use rdmascope_analyzer::report::{Connection, Handshake, Report, Sink};
use rdmascope_capture::{Access, WholeFile};
use rdmascope_compare::expect::{self, Expectations};
use rdmascope_compare::profile::{Profile, Profiler};
use rdmascope_screens::ForReports;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Exit status: there are findings that `--fail-on` names.
const FOUND: u8 = 1;
/// The manual's site, if it was set when the program was built.
const MANUAL: Option<&str> = option_env!("RDMASCOPE_DOCS_URL");
/// Width in columns if no terminal tells its own.
const WIDTH: usize = 120;
/// A report is not made wider than this, however wide the terminal.
const WIDTH_MAX: usize = 160;

/// How reports are written, whatever they are of.
struct How {
    color: Color,
    /// What the configuration file says of reports.
    configured: ForReports,
}

pub(super) fn run(args: &Analyze, color: Color) -> Result<ExitCode> {
    if (args.exchanges || args.credits) && !matches!(args.format, ReportFormat::Json) {
        say("--exchanges and --credits need --format json");
    }
    if args.live.interfaces.is_empty() && (args.every.is_some() || args.metrics.is_some() || !args.autostop.is_empty())
    {
        say("--every, --metrics and -a are for live captures (-i): they have no effect on files");
    }
    // a list of findings to leave out decides on the exit status: a mistake in it is no warning
    let how = &How { color, configured: rdmascope_screens::for_reports()? };
    crate::report::words::set_clock(args.clock.clone());
    let filter = match &args.filter {
        // only a filter needs the fields by name
        Some(text) => cli::filter(Some(text), &cli::registry())?,
        None => None,
    };
    let wanted = Wanted { exchanges: args.exchanges, credits: args.credits };
    let defaults = Options::default();
    let options = Options {
        check_crc: !args.no_crc,
        payloads: args.exchanges,
        memory_max: args.memory.unwrap_or(defaults.memory_max),
        connections_max: args.max_connections.unwrap_or(defaults.connections_max),
        pins: args.pins.iter().map(|p| (p.0, p.1)).collect(),
        keyring: super::keyring(args.keys.as_deref())?,
        ..defaults
    };
    if !args.live.interfaces.is_empty() {
        return live(args, options, wanted, how);
    }
    let threads = super::threads(args.threads);
    let signals = if input::has_pipe(&args.files) { Some(Signals::listen()?) } else { None };
    let opened = input::open_each(&args.files, signals.as_ref().map(|s| &s.stop))?;
    let expectations = args.expect.as_deref().map(expectations).transpose()?;
    let file = create(args)?;
    let name = |place: &usize| args.files.get(*place).map(|path| path.display().to_string()).unwrap_or_default();
    let run = Run { options, threads, small: SMALL, filter, frames: args.count.unwrap_or(u64::MAX) };
    let names = opened.read.iter().map(name).collect();
    if args.expect.is_some() || args.write_expect.is_some() {
        let done = analysis::run(opened.input, names, run, Both(Collector::new(wanted), Profiler::default()));
        return checked(args, done, expectations, file, how);
    }
    let mut analysis = analysis::run_in_parts(opened.input, names, run, Collector::new(wanted));
    for (place, error) in opened.damaged {
        let summary = InputSummary { path: name(&place), error: Some(error.to_string()), ..InputSummary::default() };
        analysis.inputs.insert(place.min(analysis.inputs.len()), summary);
        analysis.error.get_or_insert(error);
    }
    if signals.is_some_and(|s| s.stop.load(Ordering::Relaxed)) {
        say("interrupted: the report covers the frames read until then");
    }
    show(args, analysis, file, how)
}

/// Collects data for the report and for expectations.
struct Both(Collector, Profiler);

impl Sink for Both {
    fn exchange(&mut self, exchange: &Exchange) {
        self.0.exchange(exchange);
        self.1.exchange(exchange);
    }
    fn credits(&mut self, connection: u32, at: At, held: [Option<i64>; 2]) {
        self.0.credits(connection, at, held);
    }
}

fn expectations(path: &Path) -> Result<Expectations> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Expectations::read(&text).with_context(|| format!("{} is not a valid expectation", path.display()))
}

/// Compares a capture with its expectations, or writes new ones.
fn checked(
    args: &Analyze,
    done: Analysis<Both>,
    expectations: Option<Expectations>,
    file: Option<WholeFile>,
    how: &How,
) -> Result<ExitCode> {
    let Analysis { report, sink: Both(collector, profiler), inputs, lost_frames, hardware, selection, error } = done;
    let profile = Profile::new(&report, profiler);
    if let Some(path) = &args.write_expect {
        let inputs: Vec<PathBuf> = args.files.iter().chain(&args.keys).chain(&args.expect).cloned().collect();
        let mut out = WholeFile::create(path, &inputs, args.force.existing(), Access::Umask)?;
        out.write_all(Expectations::write(&profile).as_bytes())?;
        out.finish()?;
    }
    let verdicts = expectations.map(|e| e.check(&profile));
    let analysis = Analysis { report, sink: collector, inputs, lost_frames, hardware, selection, error };
    let Some(verdicts) = verdicts else { return show(args, analysis, file, how) };
    let holds = verdicts.iter().all(|v| v.holds);
    let capture = args.files.first().map(|p| p.display().to_string()).unwrap_or_default();
    let failed = match file {
        Some(file) => Some(show(args, analysis, Some(file), how)?),
        None => match analysis.error {
            Some(e) => return Err(e.into()),
            None => None,
        },
    };
    let mut out = Out::new(how.color);
    let text = match args.verdicts {
        Verdicts::Text => expect::text(&verdicts),
        Verdicts::Junit => expect::junit(&verdicts),
        Verdicts::Tap => expect::tap(&verdicts),
        Verdicts::Sarif => format!("{}\n", serde_json::to_string_pretty(&expect::sarif(&verdicts, &capture))?),
    };
    out.buffer.extend_from_slice(text.as_bytes());
    out.finish()?;
    Ok(if holds { failed.unwrap_or(ExitCode::SUCCESS) } else { ExitCode::from(FOUND) })
}

/// Analyses interfaces until it is stopped.
fn live(args: &Analyze, options: Options, wanted: Wanted, how: &How) -> Result<ExitCode> {
    let signals = Signals::listen()?;
    let threads = super::threads(args.threads);
    let (source, dropped) = crate::live::open(&args.live, signals.stop.clone(), threads)?;
    let file = create(args)?;
    say(&crate::live::opening_line(&args.live, &source, &dropped));
    crate::live::print_remarks(&source);
    let watch = Watch {
        every: args.every,
        // lines would disturb a reader of JSON or HTML on standard output
        lines_aside: args.output.is_none() && !matches!(args.format, ReportFormat::Text),
        metrics: args.metrics,
        until: args.autostop.iter().find_map(|l| if let cli::CaptureLimit::Time(t) = l { Some(*t) } else { None }),
        frames: args.autostop.iter().find_map(|l| if let cli::CaptureLimit::Packets(n) = l { Some(*n) } else { None }),
        rdma_root: args.live.rdma_root.clone(),
        threads,
    };
    let analysis = watch.run(source, options, Collector::new(wanted), how.color)?;
    show(args, analysis, file, how)
}

/// Remarks on pairs of queue pairs that the analysis had no use for.
fn remark_on_pins(args: &Analyze, report: &Report) {
    for pin in &args.pins {
        let of = |c: &&Connection| {
            let pairs = c.peers.map(|p| p.qp);
            [[Some(pin.0), Some(pin.1)], [Some(pin.1), Some(pin.0)]].contains(&pairs)
        };
        let name = format!("--pin {:#x}={:#x}", pin.0, pin.1);
        match report.connections.iter().find(of) {
            None => say(&format!("{name} had no effect: no connection has these queue pairs")),
            Some(c) if c.handshake != Handshake::Pinned => {
                say(&format!("{name} had no effect: connection {} has them without it", c.id));
            }
            Some(_) => {}
        }
    }
}

fn show(args: &Analyze, analysis: Analysis<Collector>, mut file: Option<WholeFile>, how: &How) -> Result<ExitCode> {
    remark_on_pins(args, &analysis.report);
    let (mut data, error) = ReportData::new(analysis);
    let mut ignore = args.ignore.clone();
    ignore.extend(how.configured.ignore.iter().filter(|of_file| !args.ignore.contains(of_file)));
    data.ignore(&ignore);
    // what only the configuration names is told where there is some
    data.ignored.retain(|(what, n)| *n > 0 || args.ignore.contains(what));
    // the manual's site: of the command line, else of the configuration file, else of the build
    data.manual = args
        .docs_url
        .clone()
        .or_else(|| how.configured.docs_url.clone())
        .or_else(|| MANUAL.and_then(|url| Manual::parse(url).ok()));
    let mut out = Out::new(how.color);
    let to_terminal = out.is_terminal && file.is_none();
    let rendered = match args.format {
        ReportFormat::Text => text::render(
            &data,
            width(to_terminal),
            Paint::new(out.color && (file.is_none() || matches!(how.color, Color::Always))),
        ),
        ReportFormat::Json => json::render(&data)?,
        ReportFormat::Html => html::render(&data),
    };
    match file.take() {
        Some(mut file) => {
            let path = args.output.as_deref().unwrap_or(Path::new(""));
            file.write_all(rendered.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))?;
            file.finish()?;
        }
        None => {
            out.buffer.extend_from_slice(rendered.as_bytes());
            if to_terminal && matches!(args.format, ReportFormat::Text) && !data.report.findings.is_empty() {
                out.buffer.extend_from_slice(b"rdmascope explain ID tells all about a finding.\n");
            }
            out.finish()?;
        }
    }
    if let Some(e) = error {
        return Err(e.into());
    }
    let fails = args.fail_on.is_some_and(|on| data.worst().is_some_and(|worst| worst >= severity(on)));
    Ok(if fails { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}

/// The file of the report, if it is not standard output. It is made before the work, so that errors show at once.
fn create(args: &Analyze) -> Result<Option<WholeFile>> {
    let Some(path) = args.output.as_deref().filter(|path| *path != Path::new("-")) else { return Ok(None) };
    let inputs: Vec<PathBuf> = args.files.iter().chain(&args.keys).chain(&args.expect).cloned().collect();
    Ok(Some(WholeFile::create(path, &inputs, args.force.existing(), Access::Umask)?))
}

fn severity(on: FailOn) -> Severity {
    match on {
        FailOn::Error => Severity::Error,
        FailOn::Warn => Severity::Warn,
        FailOn::Note => Severity::Note,
    }
}

/// Width in columns: the terminal's, else `COLUMNS` if that is set, else 120.
fn width(to_terminal: bool) -> usize {
    let set = std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok()).filter(|c| *c > 0);
    let terminal = if to_terminal { rdmascope_report::stdout::columns() } else { None };
    terminal.or(set).unwrap_or(WIDTH).min(WIDTH_MAX)
}
