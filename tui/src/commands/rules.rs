//! `rdmascope rules`: the known bugs of implementations that are looked for, and which versions have them; `--rules
//! FILE` of every verb.

use crate::cli::{self, Color, Rules};
use crate::known_bugs::{self, KnownBugs};
use crate::report::words;
use crate::stdout::{Out, width};
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::rules::{Group, Hit, Row, Rule, version};
use rdmascope_capture::{Access, WholeFile};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Applies the known bugs of a file, in addition to or in place of the built-in ones.
pub(super) fn give(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let bugs = KnownBugs::read(&text, &cli::registry())
        .with_context(|| format!("{} is not a file of known bugs", path.display()))?;
    if !bugs.give() {
        bail!("{}: known bugs were given before", path.display());
    }
    Ok(())
}

pub(super) fn run(args: &Rules, color: Color) -> Result<ExitCode> {
    if let Some(path) = args.write.as_deref().filter(|path| *path != Path::new("-")) {
        let mut file = WholeFile::create(path, &[], args.force.existing(), Access::Umask)?;
        file.write_all(known_bugs::write().as_bytes())?;
        file.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = Out::new(color);
    match (&args.write, &args.kernel) {
        (Some(_), _) => out.buffer.extend_from_slice(known_bugs::write().as_bytes()),
        (None, None) => list(|_| true, width(), &mut out.buffer),
        (None, Some(kernel)) => {
            let Some(asked) = kernel.split(['-', '+']).next().and_then(version) else {
                bail!("{kernel} is not a version of Linux, such as 6.12.49");
            };
            for (title, wanted) in
                [("Affected", Hit::Yes), ("Perhaps affected: the fixed versions are not known", Hit::Unknown)]
            {
                let of_kernel = |row: &Row| row.hits.product.starts_with("Linux") && row.hits.hit(asked) == wanted;
                if !rows().any(of_kernel) {
                    continue;
                }
                writeln!(out.buffer, "{}{title}", if out.buffer.is_empty() { "" } else { "\n" })?;
                list(of_kernel, width(), &mut out.buffer);
            }
            if out.buffer.is_empty() {
                writeln!(out.buffer, "Linux {kernel} has none of the known bugs.")?;
            }
        }
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn rows() -> impl Iterator<Item = &'static Row> {
    Rule::all().map(Rule::row).filter(|row| row.group == Group::KnownBug)
}

/// Lists each wanted rule with its title and the versions that have the bug.
fn list(wanted: impl Fn(&Row) -> bool, columns: usize, out: &mut Vec<u8>) {
    let before = rows().map(|row| row.id.len()).max().unwrap_or(0) + 4;
    for row in rows().filter(|row| wanted(row)) {
        let hits = row.hits.to_string();
        let lines =
            [row.title, &hits].into_iter().flat_map(|text| words::wrap(text, columns.saturating_sub(before).max(24)));
        for (n, line) in lines.enumerate() {
            // writing to a vector cannot fail
            let _ = writeln!(out, "  {:width$}  {line}", if n == 0 { row.id } else { "" }, width = before - 4);
        }
    }
}
