//! `rdmascope-mutants`: how many mutants of the analysis the tests catch. All mutants are compiled into one binary, and
//! one of them is chosen when it runs, so that two thousand of them take one build.

#![forbid(unsafe_code)]

mod places;
mod run;
// compiled here, too, so that a mistake shows without a copy
mod runtime;
mod scratch;
mod tests;

use scratch::Scratch;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Counts the mutants of the analysis that the tests catch

Usage: rdmascope-mutants [OPTIONS]

Options:
  --files PATTERN   Mutate these files below analyzer/src; * stands for any text. May be given more than once.
                    Without it: rules, audit, link, flow, attribution
  --kind NAME       Mutate only comparison, guard, logic, not, body, arithmetic or bits. May be given more than once
  --function TEXT   Only mutants with this in their name
  --list            Print the mutants, and build nothing
  --folder PATH     Copy, build and results [default: /tmp/mutants]
  --seeds N         Seeds of the simulator for each mutant that the tests do not catch [default: 200]
  --slowest SECONDS Leave out tests that take longer than this without a mutant [default: 60]
  --jobs N          Mutants that are run at the same time [default: 1]
  --again           Run the survivors of the last run again
  --table           Print the table of the results that there are, and run nothing
";

/// What the audit of rules, the rulebook of SMB Direct, flow and attribution of time are in.
const FILES: &[&str] = &["rules.rs", "audit.rs", "messages/smbd/link.rs", "flow/*", "connection/facts/*", "episodes/*"];

/// What was asked for.
pub struct Asked {
    files: Vec<String>,
    kinds: Vec<String>,
    function: Option<String>,
    folder: PathBuf,
    seeds: u64,
    slowest: f64,
    jobs: usize,
    list: bool,
    again: bool,
    table: bool,
}

fn asked() -> Result<Option<Asked>, String> {
    let mut asked = Asked {
        files: Vec::new(),
        kinds: Vec::new(),
        function: None,
        folder: "/tmp/mutants".into(),
        seeds: 200,
        slowest: 60.0,
        jobs: 1,
        list: false,
        again: false,
        table: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        let number = |text: String| text.parse::<f64>().map_err(|_| format!("{text} is not a number"));
        match name.as_str() {
            "--files" => asked.files.push(value()?),
            "--kind" => asked.kinds.push(value()?),
            "--function" => asked.function = Some(value()?),
            "--folder" => asked.folder = value()?.into(),
            "--seeds" => asked.seeds = number(value()?)? as u64,
            "--slowest" => asked.slowest = number(value()?)?,
            "--jobs" => asked.jobs = (number(value()?)? as usize).max(1),
            "--list" => asked.list = true,
            "--again" => asked.again = true,
            "--table" => asked.table = true,
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("there is no option {name}; --help lists them")),
        }
    }
    if asked.files.is_empty() {
        asked.files = FILES.iter().map(ToString::to_string).collect();
    }
    let is_kind = |name: &String| places::Kind::ALL.iter().any(|kind| kind.name() == name);
    if let Some(wrong) = asked.kinds.iter().find(|name| !is_kind(name)) {
        return Err(format!("there is no kind {wrong}; --help lists them"));
    }
    Ok(Some(asked))
}

fn all(asked: &Asked) -> Result<(), String> {
    std::fs::create_dir_all(&asked.folder).map_err(|e| format!("{}: {e}", asked.folder.display()))?;
    let mut scratch = Scratch::new(&asked.folder, &asked.files, !asked.list && !asked.table)?;
    scratch.mutants.retain(|m| {
        (asked.kinds.is_empty() || asked.kinds.iter().any(|k| k == m.kind.name()))
            && asked.function.as_ref().is_none_or(|text| m.name.contains(text.as_str()))
    });
    if asked.list {
        for m in &scratch.mutants {
            println!("{} {}", m.line, m.name);
        }
        println!("{} mutants; not mutated: {:?}", scratch.mutants.len(), scratch.left_out);
        return Ok(());
    }
    run::run(&scratch, asked)
}

fn main() -> ExitCode {
    if let Some(result) = scratch::wrapped() {
        return result.unwrap_or_else(|e| {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        });
    }
    let result = asked().and_then(|asked| match asked {
        Some(asked) => all(&asked),
        None => {
            print!("{HELP}");
            Ok(())
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
