//! `rdmascope schema [NAME]`: what a program may rely on in an output, as JSON Schema.

use crate::cli::{Color, Schema};
use crate::report::json;
use crate::stdout::Out;
use anyhow::Result;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(args: &Schema, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    match &args.name {
        Some(_) => writeln!(out.buffer, "{}", serde_json::to_string_pretty(&json::schema())?)?,
        None => writeln!(out.buffer, "analyze    rdmascope analyze --format json")?,
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
