//! `rdmascope cut IN OUT`: copies whole connections from a capture.

use crate::analysis::meta_of;
use crate::cli::{self, Color, Cut};
use crate::dissection::{self, Past};
use crate::input::{self, Bar};
use crate::known_bugs;
use crate::report::words::count;
use crate::stdout::Out;
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::finding::Rule;
use rdmascope_capture::{OpenOptions, PcapngWriter, Source, open};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::render::escaped;
use rdmascope_dissector::trace::{Off, Trace};
use rdmascope_share::cut::{Cuts, Cutter, Wanted};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(args: &Cut, color: Color) -> Result<ExitCode> {
    if input::has_pipe(std::slice::from_ref(&args.files.input)) {
        bail!("a pipe cannot be read twice: cut needs a file");
    }
    let registry = cli::registry();
    let filter = cli::filter(args.filter.as_deref(), &registry)?;
    let findings = args.findings.iter().map(|id| rules(id)).collect::<Result<Vec<_>>>()?.concat();
    let whole = args.files.create(&[])?;
    let (cuts, frames, first_ns, error) = follow(&args.files.input, filter)?;
    let at = |seconds: f64| first_ns.saturating_add((seconds * 1e9) as i64);
    let span = (args.from.is_some() || args.to.is_some())
        .then(|| (args.from.map_or(i64::MIN, at), args.to.map_or(i64::MAX, at)));
    let wanted = Wanted {
        connections: args.connections.clone(),
        findings,
        requests: args.requests.clone(),
        frames,
        span,
        alone: args.alone,
    };
    let nothing = wanted.connections.is_empty() && wanted.findings.is_empty() && wanted.requests.is_empty();
    if nothing && wanted.frames.is_none() && span.is_none() {
        bail!("choose what to copy: -Y FILTER, --connection N, --request N, --finding ID, --from or --to");
    }
    if let Some(id) = args.requests.iter().find(|id| !cuts.has_request(**id)) {
        bail!("there is no request {id}: rdmascope analyze --format json --exchanges lists them");
    }
    if let Some(id) = args.connections.iter().find(|id| cuts.report.connections.iter().all(|c| c.id != **id)) {
        bail!("there is no connection {id}: rdmascope analyze lists {} of them", cuts.report.connections.len());
    }
    let choice = cuts.choose(&wanted);
    if choice.frames == 0 {
        bail!("nothing in {} matches", args.files.input.display());
    }
    let mut source = open(&args.files.input, OpenOptions::new())?;
    let section = source.metadata().sections.first().cloned().unwrap_or_default();
    let Some(whole) = whole else {
        write(&mut source, PcapngWriter::create("-", &section)?, |n| choice.has(n))?;
        return error.map_or(Ok(ExitCode::SUCCESS), |e| Err(e).context("the part before was written"));
    };
    write(&mut source, PcapngWriter::new(whole, &args.files.output, &section)?, |n| choice.has(n))?.finish()?;
    let mut out = Out::new(color);
    let name = escaped(&args.files.output.display().to_string());
    writeln!(
        out.buffer,
        "{name}: {}, {}",
        count(choice.frames, "frame"),
        count(choice.connections.len() as u64, "connection")
    )?;
    if !choice.along.is_empty() {
        let along: Vec<String> = choice.along.iter().map(u32::to_string).collect();
        writeln!(
            out.buffer,
            "connection {} is included: it belongs to the same session, or a finding was compared with it (--alone \
                leaves it out)",
            along.join(", ")
        )?;
    }
    out.finish()?;
    error.map_or(Ok(ExitCode::SUCCESS), |e| Err(e).context("the part before was written"))
}

/// The rule of this id, or those whose ids begin so.
fn rules(id: &str) -> Result<Vec<Rule>> {
    let upper = id.trim().to_ascii_uppercase();
    if let Some(rule) = Rule::from_id(&upper) {
        return Ok(vec![rule]);
    }
    let found: Vec<Rule> = Rule::all().filter(|rule| !upper.is_empty() && rule.id().starts_with(&upper)).collect();
    if found.is_empty() {
        bail!("no finding \"{id}\"; rdmascope explain lists all");
    }
    Ok(found)
}

type Followed = (Cuts, Option<BTreeSet<u64>>, i64, Option<rdmascope_capture::Error>);

/// Assigns each frame to a connection, and finds the frames that the filter passes. Also returns the time of the first
/// frame, and the error that ended reading early.
fn follow(input: &Path, filter: Option<Filter>) -> Result<Followed> {
    let mut source = open(input, OpenOptions::new())?;
    let mut cutter = Cutter::new();
    let mut bar = Bar::before_output();
    let mut filter = filter;
    let mut extractor = Extractor::new();
    if let Some(filter) = &mut filter {
        filter.bind(&mut extractor);
    }
    let mut conditions = known_bugs::conditions();
    conditions.iter_mut().for_each(|condition| condition.bind(&mut extractor));
    let mut passed = filter.as_ref().map(|_| BTreeSet::new());
    let (mut number, mut time_ns, mut first_ns, mut past) = (0, 0, None, Past::default());
    let error = loop {
        match source.advance() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(e) => break Some(e),
        }
        let record = source.record();
        number += 1;
        let meta = meta_of(&record, number, &mut time_ns);
        first_ns.get_or_insert(meta.time_ns);
        if filter.is_none() && conditions.is_empty() {
            cutter.frame(&meta, record.bytes, &mut Off);
        } else {
            extractor.begin();
            dissection::trace(&record, source.interfaces(), past.before(&meta), &mut extractor);
            cutter.frame(&meta, record.bytes, &mut extractor);
            extractor.end();
            conditions.iter().for_each(|condition| condition.check(&meta, &extractor, cutter.analysis()));
        }
        if let (Some(filter), Some(passed)) = (&filter, &mut passed)
            && filter.matches(&extractor)
        {
            passed.insert(number);
        }
        bar.frame(&source);
    };
    Ok((cutter.finish(), passed, first_ns.unwrap_or(0), error))
}

fn write<S: Source, W: Write>(source: &mut S, mut writer: PcapngWriter<W>, has: impl Fn(u64) -> bool) -> Result<W> {
    let mut revision = None;
    let mut number = 0;
    while matches!(source.advance(), Ok(true)) {
        if revision != Some(source.metadata().revision) {
            revision = Some(source.metadata().revision);
            writer.catch_up(source.metadata())?;
        }
        number += 1;
        if has(number) {
            writer.write(&source.record())?;
        }
    }
    Ok(writer.finish()?)
}
