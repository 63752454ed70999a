//! `rdmascope compare CLIENT SERVER…`: the same packets at two points, or more.

use crate::analysis::meta_of;
use crate::cli::{Color, Compare, ReportFormat};
use crate::dissection::Past;
use crate::input::Bar;
use crate::known_bugs::Search;
use crate::live::say;
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::pipeline::Pipeline;
use rdmascope_capture::{Access, Interface, OpenOptions, PcapngWriter, Record, Section, Source, WholeFile, open};
use rdmascope_compare::names::names;
use rdmascope_compare::page;
use rdmascope_compare::points::{Clock, Comparison, Hop, Point, Timed};
use rdmascope_dissector::frame;
use rdmascope_dissector::trace::{Off, Pair};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) fn run(args: &Compare, color: Color) -> Result<ExitCode> {
    if args.write.is_some() && args.captures.iter().any(|path| path == Path::new("-")) {
        bail!("standard input cannot be read twice: -w needs files");
    }
    let file = args.outlet.create(&args.captures)?;
    let merged = args.write.as_deref().filter(|path| *path != Path::new("-"));
    let merged = merged
        .map(|path| WholeFile::create(path, &args.captures, args.outlet.force.existing(), Access::Private))
        .transpose()?;
    let names = names(&args.captures);
    let create =
        |path: &PathBuf| WholeFile::create(path, &args.captures, args.outlet.force.existing(), Access::Private);
    let mut requests = args.requests.as_ref().map(create).transpose()?;
    let mut points = Vec::new();
    let mut damaged = None;
    for path in &args.captures {
        let (point, error) = read(path)?;
        points.push(point);
        damaged = damaged.or(error);
    }
    let [first, others @ ..] = &points[..] else { bail!("two captures are needed") };
    let compared = compare(first, others, &names, requests.as_mut())?;
    let pairs = || compared.iter().zip(names.iter().skip(1)).map(|(c, other)| (c, [names[0].as_str(), other.as_str()]));
    let rendered = match args.format {
        ReportFormat::Html => page::html(&pairs().collect::<Vec<_>>()),
        ReportFormat::Text => pairs().map(|(c, names)| c.text(names)).collect::<Vec<_>>().join("\n"),
        ReportFormat::Json if compared.len() == 1 => {
            format!("{}\n", serde_json::to_string_pretty(&pairs().map(|(c, names)| c.json(names)).next())?)
        }
        ReportFormat::Json => {
            format!("{}\n", serde_json::to_string_pretty(&pairs().map(|(c, names)| c.json(names)).collect::<Vec<_>>())?)
        }
    };
    if let Some(left_out) = points.iter().map(|p| p.left_out).find(|n| *n > 0) {
        say(&format!("{left_out} packets of a capture were not compared: there were too many"));
    }
    if let Some(whole) = merged {
        let clocks: Vec<Option<Clock>> = std::iter::once(None).chain(compared.iter().map(|c| c.clock)).collect();
        if clocks[1..].iter().any(|c| c.is_none_or(|c| !c.both_ways)) {
            bail!("the clock offset is not known: no packets of both directions were seen at both points");
        }
        merge(
            &args.captures,
            &clocks,
            PcapngWriter::new(whole, args.write.as_deref().unwrap_or(Path::new("")), &section())?,
        )?
        .finish()?;
    }
    if let Some(requests) = requests {
        requests.finish()?;
    }
    super::deliver(file, &rendered, color)?;
    damaged.map_or(Ok(ExitCode::SUCCESS), |e| Err(e).context("the part before was compared"))
}

/// Each of the others held against the first; every request goes into the table as a row.
fn compare(
    first: &Point,
    others: &[Point],
    names: &[String],
    table: Option<&mut WholeFile>,
) -> Result<Vec<Comparison>> {
    let mut table = table.map(BufWriter::new);
    let mut written = table.as_mut().map_or(Ok(()), |table| writeln!(table, "{}", Timed::COLUMNS));
    let mut compared = Vec::new();
    for (other, name) in others.iter().zip(&names[1..]) {
        compared.push(Comparison::telling(first, other, |timed| {
            if let (Some(table), true) = (&mut table, written.is_ok()) {
                written = writeln!(table, "{}", timed.csv([&names[0], name]));
            }
        }));
    }
    written
        .and_then(|()| table.as_mut().map_or(Ok(()), BufWriter::flush))
        .context("the table of requests could not be written")?;
    Ok(compared)
}

fn section() -> Section {
    Section { application: Some("rdmascope compare".to_owned()), ..Section::default() }
}

/// A capture up to where it is damaged.
fn read(path: &Path) -> Result<(Point, Option<rdmascope_capture::Error>)> {
    let mut source = open(path, OpenOptions::new())?;
    let mut pipeline = Pipeline::with_sink(Default::default(), Point::default());
    let decode = pipeline.decode_options();
    let mut bar = Bar::before_output();
    let (mut number, mut time_ns) = (0, 0);
    let (mut search, mut past) = (Search::new(), Past::default());
    let error = loop {
        match source.advance() {
            Ok(true) => {}
            Ok(false) => break None,
            Err(e) => break Some(e),
        }
        let record = source.record();
        number += 1;
        let meta = meta_of(&record, number, &mut time_ns);
        let mut hop = Hop::default();
        match &mut search {
            Some(search) => {
                let listener = search.begin(&record, source.interfaces(), past.before(&meta));
                let packet = frame::decode(
                    meta.link_type,
                    record.bytes,
                    meta.wire_len,
                    &decode,
                    &mut Pair(&mut hop, &mut *listener),
                );
                pipeline.sink().packet(number, meta.time_ns, &packet, &hop, record.bytes);
                pipeline.packet(&meta, &packet, listener);
                search.end(&meta, &mut pipeline);
            }
            None => {
                let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &decode, &mut hop);
                pipeline.sink().packet(number, meta.time_ns, &packet, &hop, record.bytes);
                pipeline.packet(&meta, &packet, &mut Off);
            }
        }
        bar.frame(&source);
    };
    let (report, mut point) = pipeline.finish();
    point.findings(&report);
    point.dropped(source.metadata().lost_frames());
    Ok((point, error))
}

/// A capture on its way into another one.
struct Input<S> {
    source: S,
    clock: Option<Clock>,
    /// The numbers of its interfaces in the new capture.
    interfaces: Vec<u32>,
    /// When its next frame came, by the clock of the first capture.
    next: Option<i64>,
}

impl<S: Source> Input<S> {
    fn advance(&mut self) {
        let more = matches!(self.source.advance(), Ok(true));
        let time = self.source.record().time_ns;
        self.next = more.then(|| self.clock.map_or(time, |clock| clock.first(time)).max(0));
    }
}

/// All captures in one, by the clock of the first: an interface each.
fn merge<W: Write>(paths: &[PathBuf], clocks: &[Option<Clock>], mut writer: PcapngWriter<W>) -> Result<W> {
    let (names, mut inputs) = (names(paths), Vec::new());
    for (path, clock) in paths.iter().zip(clocks) {
        let mut input =
            Input { source: open(path, OpenOptions::new())?, clock: *clock, interfaces: Vec::new(), next: None };
        input.advance();
        inputs.push(input);
    }
    while let Some((n, time)) =
        inputs.iter().enumerate().filter_map(|(n, i)| Some((n, i.next?))).min_by_key(|(_, time)| *time)
    {
        let input = &mut inputs[n];
        for interface in input.source.metadata().interfaces.get(input.interfaces.len()..).unwrap_or(&[]) {
            let own = interface.name.as_deref().unwrap_or("interface");
            let name = Some(format!("{}: {own}", names[n]));
            input.interfaces.push(writer.add_interface(&Interface { name, ..interface.clone() })?);
        }
        let record = input.source.record();
        let interface = input.interfaces.get(record.interface as usize).copied().unwrap_or(0);
        writer.write(&Record::new(time, interface, record.link_type, record.wire_len, record.bytes))?;
        input.advance();
    }
    Ok(writer.finish()?)
}
