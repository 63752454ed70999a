//! `rdmascope completions SHELL`.

use crate::cli::{Cli, Color, Completions};
use crate::stdout::Out;
use anyhow::Result;
use clap::CommandFactory;
use std::process::ExitCode;

pub(super) fn run(args: &Completions, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    clap_complete::generate(args.shell, &mut Cli::command(), "rdmascope", &mut out.buffer);
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
