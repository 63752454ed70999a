//! `rdmascope dissect`: frames as lines, trees, bytes, JSON, XML or columns.

use crate::cli::{Color, Dissect, Format, field, filter};
use crate::dissection::{Dissected, Dissection};
use crate::input::{Bar, Input, open_all};
use crate::output::ek::Ek;
use crate::output::fields::{Fields, Options};
use crate::output::hex;
use crate::output::json::Json;
use crate::output::lines::Lines;
use crate::output::pdml::Pdml;
use crate::output::summary::Summary;
use crate::output::tree::Trees;
use crate::stdout::Out;
use anyhow::{Result, bail};
use rdmascope_capture::{Interface, Record, Source};
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::probe::Probe;
use rdmascope_dissector::trace::{Line, Pair, Tree};
use std::process::ExitCode;

/// What `-T csv` writes of a frame where nothing is named.
const CSV_FIELDS: [&str; 14] = [
    "frame.number",
    "frame.time_epoch",
    "frame.len",
    "ip.src",
    "ip.dst",
    "infiniband.bth.destqp",
    "infiniband.bth.opcode",
    "smb2.cmd",
    "rdmascope.connection",
    "rdmascope.exchange",
    "rdmascope.exchange.time",
    "rdmascope.credits.client",
    "rdmascope.credits.server",
    "rdmascope.finding.id",
];

pub(super) fn run(args: &Dissect, color: Color) -> Result<ExitCode> {
    let registry = crate::cli::registry();
    let format = args.format.unwrap_or(Format::Text);
    if format == Format::Fields && args.fields.is_empty() {
        bail!("-T fields needs at least one -e FIELD");
    }
    let columns = matches!(format, Format::Fields | Format::Csv);
    if !(columns || args.fields.is_empty() && args.options.is_empty()) {
        bail!("-e and -E need -T fields or -T csv");
    }
    if args.hex && format != Format::Text {
        bail!("-x prints text; it cannot be used with -T");
    }
    if args.summary && !matches!(format, Format::Text | Format::Json) {
        bail!("-s is text or -T json");
    }
    let csv = format == Format::Csv;
    let options = if csv { Options::csv() } else { Options::default() }.with(&args.options)?;
    let names: Vec<&str> = match args.fields.as_slice() {
        [] if csv => CSV_FIELDS.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let fields = names.into_iter().map(|name| field(name, &registry)).collect::<Result<Vec<_>>>()?;
    let mut probe = Probe::new();
    let mut filter = filter(args.filter.as_deref(), &registry)?;
    if let Some(filter) = &mut filter {
        filter.bind(&mut probe);
    }
    let mut out = Out::new(color);
    let sink = match format {
        _ if args.summary => Sink::Summary(Summary::default(), format == Format::Json),
        Format::Text if args.tree || args.hex => {
            Sink::Tree { lines: (!args.tree).then(|| Lines::new(out.color)), trees: Trees::default(), hex: args.hex }
        }
        Format::Text => Sink::Lines(Lines::new(out.color)),
        Format::Json => Sink::Json(Json::new(args.no_duplicate_keys)),
        Format::Ek => Sink::Ek(Ek::new()),
        Format::Pdml => Sink::Pdml(Pdml::default()),
        Format::Fields | Format::Csv => Sink::Fields(Fields::new(options, &fields, &mut probe, out.is_terminal)),
    };
    let input = open_all(&args.files)?;
    let name = args.files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" ");
    let mut tree = Tree::new();
    tree.quiet = matches!(format, Format::Json | Format::Ek);
    let mut job =
        Job { filter, probe, tree, line: Line::default(), dissection: Dissection::new(crate::input::keyring(args.keys.as_deref())?), sink };
    match input {
        Input::One(mut capture) => job.run(&mut capture, &mut out, args.count, &name),
        Input::Many(mut merged) => job.run(&mut merged, &mut out, args.count, &name),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// What is done with each frame.
enum Sink {
    Lines(Lines),
    Fields(Fields),
    Tree { lines: Option<Lines>, trees: Trees, hex: bool },
    Json(Json),
    Ek(Ek),
    Pdml(Pdml),
    Summary(Summary, bool),
}

struct Job {
    filter: Option<Filter>,
    probe: Probe,
    tree: Tree,
    line: Line,
    dissection: Dissection,
    sink: Sink,
}

impl Job {
    /// All frames, up to `count` shown. A damaged capture gives what is before the damage, and then its error.
    fn run(&mut self, source: &mut impl Source, out: &mut Out, count: Option<u64>, name: &str) -> Result<()> {
        self.begin(&mut out.buffer, name);
        let mut bar = Bar::new();
        let mut left = count.unwrap_or(u64::MAX);
        let mut damage = None;
        while left > 0 {
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    damage = Some(e);
                    break;
                }
            }
            if self.frame(&source.record(), source.interfaces(), out) {
                left -= 1;
                if out.is_terminal {
                    out.write()?;
                } else {
                    out.spill()?;
                }
            }
            bar.frame(source);
        }
        self.end(&mut out.buffer);
        drop(bar);
        out.finish()?;
        damage.map_or(Ok(()), |e| Err(e.into()))
    }

    fn begin(&self, out: &mut Vec<u8>, name: &str) {
        match &self.sink {
            Sink::Json(json) => json.begin(out),
            Sink::Pdml(pdml) => pdml.begin(out, name),
            Sink::Fields(fields) => fields.begin(out),
            Sink::Lines(_) | Sink::Tree { .. } | Sink::Ek(_) | Sink::Summary(..) => {}
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        match &self.sink {
            Sink::Json(json) => json.end(out),
            Sink::Pdml(pdml) => pdml.end(out),
            Sink::Summary(summary, true) => summary.json(out),
            Sink::Summary(summary, false) => summary.text(out),
            Sink::Lines(_) | Sink::Tree { .. } | Sink::Ek(_) | Sink::Fields(_) => {}
        }
    }

    /// One frame; whether it was shown.
    fn frame(&mut self, record: &Record<'_>, interfaces: &[Interface], out: &mut Out) -> bool {
        match &self.sink {
            Sink::Lines(_) | Sink::Summary(..) => self.by_line(record, interfaces, &mut out.buffer),
            Sink::Fields(_) => self.by_probe(record, interfaces, &mut out.buffer),
            Sink::Tree { .. } | Sink::Json(_) | Sink::Ek(_) | Sink::Pdml(_) => self.by_tree(record, interfaces, out),
        }
    }

    fn by_line(&mut self, record: &Record<'_>, interfaces: &[Interface], out: &mut Vec<u8>) -> bool {
        self.line.begin();
        let d = match &self.filter {
            None => self.dissection.frame(record, interfaces, &mut self.line),
            Some(filter) => {
                self.probe.begin();
                let d = self.dissection.frame(record, interfaces, &mut Pair(&mut self.probe, &mut self.line));
                if !filter.matches(&self.probe) {
                    return false;
                }
                d
            }
        };
        let Line { protocol, info, faults } = &self.line;
        match &mut self.sink {
            Sink::Lines(lines) => lines.frame(out, &d, protocol, info, *faults > 0),
            Sink::Summary(summary, _) => summary.frame(&d, protocol, *faults > 0),
            _ => {}
        }
        true
    }

    fn by_probe(&mut self, record: &Record<'_>, interfaces: &[Interface], out: &mut Vec<u8>) -> bool {
        self.probe.begin();
        self.dissection.frame(record, interfaces, &mut self.probe);
        if self.filter.as_ref().is_some_and(|f| !f.matches(&self.probe)) {
            return false;
        }
        if let Sink::Fields(fields) = &mut self.sink {
            fields.frame(out, &self.probe);
        }
        true
    }

    fn by_tree(&mut self, record: &Record<'_>, interfaces: &[Interface], out: &mut Out) -> bool {
        self.tree.begin(record.bytes);
        let d: Dissected = self.dissection.frame(record, interfaces, &mut self.tree);
        if let Some(filter) = &self.filter {
            self.probe.load(&self.tree);
            if !filter.matches(&self.probe) {
                return false;
            }
        }
        let (tree, color, out) = (&self.tree, out.color, &mut out.buffer);
        match &mut self.sink {
            Sink::Tree { lines, trees, hex } => {
                match lines {
                    Some(lines) => lines.frame(out, &d, tree.protocol, &tree.info, !tree.faults.is_empty()),
                    None => trees.frame(out, &d, tree, color),
                }
                if *hex {
                    hex::frame(out, tree, color);
                }
            }
            Sink::Json(json) => json.frame(out, &d, tree),
            Sink::Ek(ek) => ek.frame(out, &d, tree),
            Sink::Pdml(pdml) => pdml.frame(out, &d, tree),
            Sink::Lines(_) | Sink::Fields(_) | Sink::Summary(..) => {}
        }
        true
    }
}
