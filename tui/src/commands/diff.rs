//! `rdmascope diff A B`: the differences of the second capture from the first.

use crate::analysis::{self, Run, SMALL};
use crate::cli::{Color, Diff, TextOrJson};
use crate::input;
use crate::live::say;
use anyhow::Result;
use rdmascope_analyzer::env::Options;
use rdmascope_compare::diff::Diff as Differences;
use rdmascope_compare::profile::{Profile, Profiler};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status: there are differences, and `--fail` is set.
const DIFFERS: u8 = 1;

pub(super) fn run(args: &Diff, color: Color) -> Result<ExitCode> {
    let inputs: Vec<PathBuf> = [&args.a, &args.b].into_iter().chain(&args.keys).cloned().collect();
    let file = args.outlet.create(&inputs)?;
    let (a, damaged_a) = profile(&args.a, args)?;
    let (b, damaged_b) = profile(&args.b, args)?;
    let diff = Differences::new(&a, &b);
    let rendered = match args.format {
        TextOrJson::Text => diff.text(),
        TextOrJson::Json => format!("{}\n", serde_json::to_string_pretty(&diff.json())?),
    };
    super::deliver(file, &rendered, color)?;
    if diff.differences.is_empty() && args.format == TextOrJson::Text {
        say("no difference is certain and large enough to matter");
    }
    if let Some(e) = damaged_a.or(damaged_b) {
        return Err(e.into());
    }
    Ok(if args.fail && !diff.differences.is_empty() { ExitCode::from(DIFFERS) } else { ExitCode::SUCCESS })
}

/// Reads the part of a capture that can be compared, up to where it is damaged.
fn profile(path: &PathBuf, args: &Diff) -> Result<(Profile, Option<rdmascope_capture::Error>)> {
    let options = Options { keyring: super::keyring(args.keys.as_deref())?, ..Options::default() };
    let input = input::open_all(std::slice::from_ref(path))?;
    let run = Run { options, threads: super::threads(None), small: SMALL, filter: None, frames: u64::MAX };
    let done = analysis::run(input, vec![path.display().to_string()], run, Profiler::default());
    Ok((Profile::new(&done.report, done.sink), done.error))
}
