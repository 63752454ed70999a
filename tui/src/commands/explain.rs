//! `rdmascope explain [FINDING]`: a rule in full, or all of them a line each.

use crate::cli::{Color, Explain};
use crate::stdout::Out;
use anyhow::{Result, anyhow};
use rdmascope_analyzer::finding::explain;
use rdmascope_analyzer::rules::Rule;
use rdmascope_dissector::filter::closest;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(args: &Explain, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    match &args.finding {
        Some(id) => {
            let rule = Rule::from_id(id).ok_or_else(|| match closest(id, Rule::ALL.iter().map(|r| r.id())) {
                Some(near) => anyhow!("no finding \"{id}\"; did you mean {near}?"),
                None => anyhow!("no finding \"{id}\"; rdmascope explain lists all"),
            })?;
            out.buffer.extend_from_slice(explain(rule).as_bytes());
            if !out.buffer.ends_with(b"\n") {
                out.buffer.push(b'\n');
            }
        }
        None => {
            let width = Rule::ALL.iter().map(|r| r.id().len()).max().unwrap_or(0);
            for rule in Rule::ALL {
                let row = rule.row();
                let _ = writeln!(out.buffer, "{:width$}  {:5}  {}", row.id, row.severity.name(), row.title);
            }
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}
