//! `rdmascope analyze FILE…` and `-i IFACE`: follows every connection of the captures and says what went wrong.

use crate::analysis::{self, Analysis, Run};
use crate::cli::{self, Analyze, Color, FailOn, ReportFormat};
use crate::input;
use crate::live::monitor::Watch;
use crate::live::{Signals, say};
use crate::report::words::Paint;
use crate::report::{Collector, Story, Wanted, html, json, text};
use crate::stdout::Out;
use anyhow::{Context, Result, anyhow};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::finding::Severity;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::thread;

/// Findings that `--fail-on` asks about exist.
const FOUND: u8 = 1;
/// Columns where no terminal says how many it has.
const WIDTH: usize = 120;
/// A report is not made wider than this, however wide the terminal.
const WIDTH_MAX: usize = 160;
/// More threads than these find nothing to do: one follows connections, the others decode for it.
const THREADS_MAX: usize = 4;

pub(super) fn run(args: &Analyze, color: Color) -> Result<ExitCode> {
    let registry = cli::registry();
    let filter = cli::filter(args.filter.as_deref(), &registry)?;
    let wanted = Wanted { exchanges: args.exchanges, credits: args.credits };
    let defaults = Options::default();
    let options = Options {
        check_crc: !args.no_crc,
        payloads: args.exchanges,
        connections_max: args.max_connections.unwrap_or(defaults.connections_max),
        pins: args.pins.iter().map(|p| (p.0, p.1)).collect(),
        keyring: input::keyring(args.keys.as_deref())?,
        ..defaults
    };
    if !args.live.interfaces.is_empty() {
        return live(args, options, wanted, color);
    }
    let threads = args.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS_MAX));
    let captures = input::open_all(&args.files)?;
    // made now, so that a folder that cannot be written to is known before the work is done
    let file = args.output.as_ref().map(|path| create(path)).transpose()?;
    let names = args.files.iter().map(|path| path.display().to_string()).collect();
    let analysis = analysis::run(captures, names, Run { options, threads, filter }, Collector::new(wanted));
    show(args, analysis, file, color)
}

/// Analyses interfaces until it is told to end.
fn live(args: &Analyze, options: Options, wanted: Wanted, color: Color) -> Result<ExitCode> {
    let signals = Signals::listen()?;
    let (source, dropped) = crate::live::open(&args.live, signals.stop.clone())?;
    let file = args.output.as_ref().map(|path| create(path)).transpose()?;
    say(&crate::live::opening_line(&args.live, &source, &dropped));
    crate::live::tell_remarks(&source);
    let watch = Watch {
        every: args.every,
        // lines would be in the way of who reads JSON or HTML from standard output
        lines_aside: args.output.is_none() && !matches!(args.format, ReportFormat::Text),
        metrics: args.metrics,
        until: args.autostop.iter().find_map(|l| if let cli::CaptureLimit::Time(t) = l { Some(*t) } else { None }),
        frames: args.autostop.iter().find_map(|l| if let cli::CaptureLimit::Packets(n) = l { Some(*n) } else { None }),
        rdma_root: args.live.rdma_root.clone(),
    };
    let analysis = watch.run(source, options, Collector::new(wanted), color)?;
    show(args, analysis, file, color)
}

fn show(args: &Analyze, analysis: Analysis<Collector>, mut file: Option<std::fs::File>, color: Color) -> Result<ExitCode> {
    let (story, error) = Story::new(analysis);
    let mut out = Out::new(color);
    let to_terminal = out.is_terminal && file.is_none();
    let rendered = match args.format {
        ReportFormat::Text => {
            text::render(&story, width(to_terminal), Paint::new(out.color && (file.is_none() || matches!(color, Color::Always))))
        }
        ReportFormat::Json => json::render(&story)?,
        ReportFormat::Html => html::render(&story),
    };
    match (&mut file, &args.output) {
        (Some(file), Some(path)) => {
            use std::io::Write;
            file.write_all(rendered.as_bytes())
                .and_then(|()| file.flush())
                .with_context(|| format!("{} cannot be written", path.display()))?;
        }
        _ => {
            out.buffer.extend_from_slice(rendered.as_bytes());
            out.finish()?;
        }
    }
    if let Some(e) = error {
        return Err(e.into());
    }
    let worst = story.report.findings.worst();
    let fails = args.fail_on.is_some_and(|on| worst.is_some_and(|worst| worst >= severity(on)));
    Ok(if fails { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}

fn create(path: &std::path::Path) -> Result<std::fs::File> {
    std::fs::File::create(path).map_err(|e| anyhow!("{} cannot be written: {e}", path.display()))
}

fn severity(on: FailOn) -> Severity {
    match on {
        FailOn::Error => Severity::Error,
        FailOn::Warn => Severity::Warn,
        FailOn::Note => Severity::Note,
    }
}

/// Columns to fill: the terminal's, `COLUMNS` where that is set, else 120.
fn width(to_terminal: bool) -> usize {
    let set = std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok()).filter(|c| *c > 0);
    let terminal = if to_terminal { rdmascope_report::stdout::columns() } else { None };
    terminal.or(set).unwrap_or(WIDTH).min(WIDTH_MAX)
}
