//! `rdmascope probe HOST`: an SMB Direct server put to the cases of the conformance suite.

use super::replay::resolve;
use crate::cli::{Color, Probe, ProbeFormat};
use crate::stdout::Out;
use anyhow::{Context, Result, bail};
use rdmascope_replay::channel::Config;
use rdmascope_replay::probe::{Target, Verdict, matching};
use rdmascope_replay::smbd::SETTLE;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// A case failed.
const FAILED: u8 = 1;

pub(super) fn run(args: &Probe, color: Color) -> Result<ExitCode> {
    let mut cases = matching(args.case.as_deref().unwrap_or(""));
    cases.retain(|case| args.slow || args.list || !case.slow);
    if cases.is_empty() {
        bail!("no case \"{}\"; rdmascope probe --list lists all", args.case.as_deref().unwrap_or_default());
    }
    let mut out = Out::new(color);
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    if args.list {
        for case in &cases {
            writeln!(out.buffer, "{:width$}  {:<18}  {}", case.name, case.spec(), case.text)?;
        }
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let transport = args.transport.open()?;
    let (host, address) = resolve(args.host.as_deref().unwrap_or_default(), transport.kind().port)?;
    let target = Target {
        address,
        config: Config::patient(transport),
        settle: Duration::from_nanos(SETTLE.unsigned_abs()),
        who: args.logon.credentials(&host)?,
        share: args.share.clone(),
        writes: args.allow_writes,
    };
    let mut keep = match &args.keep {
        Some(path) => Some((rdmascope_capture::fresh(path, args.force.existing())?, path)),
        None => None,
    };
    let (mut failed, mut rows) = (0, Vec::new());
    for case in &cases {
        let (verdict, wire) = match case.run(&target) {
            Ok(done) => done,
            // what was found up to here is told all the same
            Err(e) => {
                out.finish()?;
                return Err(e).with_context(|| format!("stopped at {}", case.name));
            }
        };
        if matches!(verdict, Verdict::Fail(_)) {
            failed += 1;
            if let Some((file, path)) = &mut keep {
                file.write_all(&wire).with_context(|| format!("{} cannot be written", path.display()))?;
            }
        }
        match args.format {
            ProbeFormat::Text => {
                let why = verdict.why().map_or_else(String::new, |why| format!(": {why}"));
                writeln!(out.buffer, "{:4}  {:width$}  {:<18}  {}{why}", verdict.name(), case.name, case.spec(), case.text)?;
                // a case takes seconds, and somebody may be waiting for it
                out.finish()?;
            }
            ProbeFormat::Json => rows.push(json!({
                "case": case.name, "verdict": verdict.name(), "spec": case.spec(), "text": case.text, "why": verdict.why(),
            })),
        }
    }
    match args.format {
        ProbeFormat::Text => writeln!(out.buffer, "\n{} cases, {failed} failed", cases.len())?,
        ProbeFormat::Json => {
            let report = json!({"rdmascope": env!("CARGO_PKG_VERSION"), "address": address.to_string(), "failed": failed, "cases": rows});
            writeln!(out.buffer, "{}", rdmascope_report::output::pretty_json(&report)?)?;
        }
    }
    out.finish()?;
    Ok(if failed > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}
