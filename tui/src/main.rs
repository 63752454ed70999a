//! The `rdmascope` command. [`cli`] defines the command line; each verb has a file in [`commands`]. Reports and output
//! formats are in `rdmascope-report`, the terminal UI is in `rdmascope-screens`.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod confine;
mod glossary;
mod live;

use anyhow::Error;
use clap::Parser;
use clap::error::ErrorKind;
use rdmascope_dissector::render::escaped;
use rdmascope_report::{analysis, dissection, input, known_bugs, output, report, shards, sheets, stdout, texts};
use std::io::{self, Write};
use std::process::ExitCode;

/// Wrong use, or input that cannot be read.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if commands::extcap::is_asked(&arguments) {
        return commands::extcap::run(&arguments).unwrap_or_else(|e| fail(&escaped(&with_causes(&e))));
    }
    let arguments = cli::with_verb(arguments);
    let cli = match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        // without arguments, the help is shown
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            return ExitCode::from(FAILED);
        }
        Err(e) if e.use_stderr() => return fail(&cli::one_line(&e, &arguments)),
        Err(e) => {
            // help and version, as requested: no failure unless they cannot be written
            return match e.print() {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    fail(&format!("standard output cannot be written: {e}"))
                }
                _ => ExitCode::SUCCESS,
            };
        }
    };
    match commands::run(cli) {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        // only the message of a filter error has several lines: the caret needs them
        Err(e) => match e.downcast_ref::<cli::FilterError>() {
            Some(filter) => fail(&filter.to_string()),
            None => fail(&escaped(&with_causes(&e))),
        },
    }
}

/// An error and its causes, each only once: many messages already contain their cause.
fn with_causes(e: &Error) -> String {
    let mut text = e.to_string();
    for cause in e.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints an error message on standard error.
fn fail(message: &str) -> ExitCode {
    // a stderr that is closed is no reason to panic
    let _ = writeln!(io::stderr(), "rdmascope: {message}");
    ExitCode::from(FAILED)
}

/// True if the reader of our output went away, as `head` does: this is not an error.
fn is_broken_pipe(e: &Error) -> bool {
    e.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}
