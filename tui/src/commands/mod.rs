//! One file per verb. Each takes its part of the command line and returns the exit status, or the error that ended it.

mod analyze;
mod anonymize;
mod capture;
mod compare;
mod completions;
mod cut;
mod diff;
mod dissect;
mod explain;
mod export;
pub(crate) mod extcap;
mod fields;
mod man;
mod peer;
mod probe;
mod replay;
mod rules;
mod schema;
mod tui;

use crate::cli::{Cli, Color, Command};
use crate::stdout::Out;
use anyhow::Result;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::WholeFile;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

/// With more threads than these, some have nothing to do: one has to walk the file.
const THREADS_MAX: usize = 16;

/// Number of threads: as asked for by `--threads`, or one per processor.
fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS_MAX))
}

/// Writes a result into the file that was made for it, or to standard output.
fn deliver(file: Option<WholeFile>, rendered: &str, color: Color) -> Result<()> {
    match file {
        Some(mut file) => {
            file.write_all(rendered.as_bytes())?;
            file.finish()?;
        }
        None => {
            let mut out = Out::new(color);
            out.buffer.extend_from_slice(rendered.as_bytes());
            out.finish()?;
        }
    }
    Ok(())
}

/// Reads the keys that a command line names. Warns at the terminal if the file is readable by others.
fn keyring(path: Option<&Path>) -> Result<Keyring> {
    if let Some(word) = path.and_then(crate::input::open_to_others).filter(|_| std::io::stderr().is_terminal()) {
        crate::live::say(&word);
    }
    crate::input::keyring(path)
}

/// Runs the command.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    if let Some(path) = &cli.rules {
        rules::give(path)?;
    }
    let mut cli = cli;
    if let Command::Analyze(args) = &mut cli.command {
        args.files.splice(..0, args.read.drain(..));
    }
    crate::confine::to_need(&cli.command);
    match cli.command {
        Command::Analyze(args) => analyze::run(&args, cli.color),
        Command::Dissect(args) => dissect::run(&args, cli.color),
        Command::Fields(args) => fields::run(&args, cli.color),
        Command::Explain(args) => explain::run(&args, cli.color),
        Command::Anonymize(args) => anonymize::run(&args, cli.color),
        Command::Cut(args) => cut::run(&args, cli.color),
        Command::Compare(args) => compare::run(&args, cli.color),
        Command::Diff(args) => diff::run(&args, cli.color),
        Command::Export(args) => export::run(&args, cli.color),
        Command::Schema(args) => schema::run(&args, cli.color),
        Command::Completions(args) => completions::run(&args, cli.color),
        Command::Man(args) => man::run(&args),
        Command::Rules(args) => rules::run(&args, cli.color),
        Command::Replay(args) => replay::run(&args, cli.color),
        Command::Probe(args) => probe::run(&args, cli.color),
        Command::Peer(args) => peer::run(&args),
        Command::Tui(args) => tui::run(args, cli.color, cli.rules.is_some()),
        Command::Capture(args) => capture::run(&args, cli.color),
    }
}
