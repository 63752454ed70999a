//! `rdmascope man DIR`: one page for the command and one for each verb.

use crate::cli::{Cli, Man};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::process::ExitCode;

pub(super) fn run(args: &Man) -> Result<ExitCode> {
    let dir = args.dir.display();
    std::fs::create_dir_all(&args.dir).with_context(|| format!("{dir}: cannot be made"))?;
    clap_mangen::generate_to(Cli::command(), &args.dir).with_context(|| format!("{dir}: the manual pages cannot be written"))?;
    Ok(ExitCode::SUCCESS)
}
