//! `rdmascope dissect`: frames as lines, trees, bytes, JSON, XML or columns.
//!
//! Dissecting a frame needs state from earlier frames of its connection. Workers share the connections of a file: each
//! writes the frames of its own ([`crate::texts`]). If one connection has most of the frames, one thread dissects and
//! others write ([`crate::sheets`]).

use crate::analysis::{SHARE_MAX, SMALL};
use crate::cli::{Color, DecodeAs, Dissect, Format, JsonNames, WriteFormat, filter};
use crate::dissection::{self, Dissected, Dissection};
use crate::input::{Bar, Input, open_all};
use crate::known_bugs::{self, Condition};
use crate::output::ek::Ek;
use crate::output::fields::{Fields, Layout, Options};
use crate::output::hex;
use crate::output::json::{Json, What};
use crate::output::lines::{Form as LineForm, Lines};
use crate::output::marks::Marks;
use crate::output::pdml::Pdml;
use crate::output::shape::Shape;
use crate::output::summary::Summary;
use crate::output::taps::Taps;
use crate::output::tree::Trees;
use crate::shards::share;
use crate::sheets::{self, Chosen, Form, Limits, Plan, Printer};
use crate::stdout::Out;
use crate::texts;
use anyhow::{Result, bail};
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::pipeline::FrameMeta;
use rdmascope_capture::{Access, Capture, Interface, PcapWriter, PcapngWriter, Record, Source, WholeFile};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::filter::Filter;
use rdmascope_dissector::trace::{Detail, Line, Pair, Tree};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Fields that `-T csv` writes of a frame if none are named.
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
    if let Some(glossary) = args.glossary {
        return super::fields::glossary(glossary, color);
    }
    let registry = crate::cli::registry();
    let format = match args.format {
        Some(Format::Ps) => bail!("-T ps is not supported: use -T text, or analyze --format html for printing"),
        format => format.unwrap_or(Format::Text),
    };
    // tshark takes arguments after its options as a filter
    let (files, behind) =
        match args.read.is_empty() || args.filter.is_some() || !args.files.iter().all(|f| is_no_file(f)) {
            true => (args.read.iter().chain(&args.files).cloned().collect(), None),
            false => {
                (args.read.clone(), Some(args.files.iter().map(|f| f.to_string_lossy()).collect::<Vec<_>>().join(" ")))
            }
        };
    let files: Vec<PathBuf> = files;
    if let Some(objects) = &args.export_objects {
        return super::export::objects(&files, args.keys.as_deref(), objects, args.force, color);
    }
    if format == Format::Fields && args.fields.is_empty() {
        bail!("-T fields needs at least one -e FIELD");
    }
    let columns = matches!(format, Format::Fields | Format::Csv);
    let is_object = matches!(format, Format::Json | Format::Ek) && !args.fields.is_empty();
    if !(columns || is_object || args.fields.is_empty() && args.options.is_empty()) {
        bail!("-e and -E need -T fields, csv, json or ek");
    }
    if is_object && (args.hex || args.summary || !args.protocols.is_empty()) {
        bail!("-e chooses the fields: it does not go with -x, -s and -j");
    }
    if !args.protocols.is_empty() && !matches!(format, Format::Json | Format::Jsonraw | Format::Ek | Format::Pdml) {
        bail!("-j chooses protocols for -T json, ek and pdml, -O for trees");
    }
    if args.hex && !matches!(format, Format::Text | Format::Json) {
        bail!("-x is for text and -T json; -T jsonraw and pdml have the bytes of each field");
    }
    if args.summary && !matches!(format, Format::Text | Format::Json) {
        bail!("-s needs -T text or -T json");
    }
    let csv = format == Format::Csv;
    let options = if csv { Options::csv() } else { Options::default() }.with(&args.options)?;
    let names: Vec<&str> = match args.fields.as_slice() {
        [] if csv => CSV_FIELDS.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    let mut extractor = Extractor::new();
    let mut filter = filter(args.filter.as_deref().or(behind.as_deref().filter(|text| !text.is_empty())), &registry)?;
    if let Some(filter) = &mut filter {
        filter.bind(&mut extractor);
    }
    let taps = Taps::new(&args.tables, &registry, &mut extractor)?;
    let mut out = Out::new(color);
    let tree = args.tree || !args.only.is_empty();
    if args.tree && format != Format::Text {
        bail!("-V is the tree of -T text; the other formats have every field without it");
    }
    let lines = |form: LineForm, color: bool| Lines::new(color).with(args.time.clone(), form);
    let sink = match format {
        _ if args.quiet || args.write.is_some() && !args.print => Sink::Nothing,
        _ if args.summary => Sink::Summary(Summary::default(), format == Format::Json),
        Format::Json | Format::Ek if is_object => {
            let layout = if format == Format::Json { Layout::Json } else { Layout::Ek };
            Sink::Fields(
                Fields::new(options, &names, &registry, &mut extractor, false, args.time.clone())?.with(layout),
            )
        }
        Format::Text if tree => Sink::Print(Printer::Tree(Trees::default(), args.hex, out.color)),
        Format::Text => Sink::Lines(lines(LineForm::Text, out.color), args.hex),
        Format::Tabs => Sink::Lines(lines(LineForm::Tabs, false), false),
        Format::Psml => Sink::Lines(lines(LineForm::Psml, false), false),
        Format::Json => Sink::Print(Printer::Json(Json::new(
            args.no_duplicate_keys,
            if args.hex { What::Both } else { What::Values },
        ))),
        Format::Jsonraw => Sink::Print(Printer::Json(Json::new(args.no_duplicate_keys, What::Raw))),
        Format::Ek => Sink::Print(Printer::Ek(Ek::new())),
        Format::Pdml => Sink::Print(Printer::Pdml(Pdml::default())),
        Format::Fields | Format::Csv => {
            Sink::Fields(Fields::new(options, &names, &registry, &mut extractor, out.is_terminal, args.time.clone())?)
        }
        Format::Ps => unreachable!("refused above"),
    };
    // a pipe cannot be read twice
    let twice = args.twice && !crate::input::has_pipe(&files);
    if args.twice && !twice {
        crate::live::say(
            "-2: a pipe is read only once, so requests do not show the frame that answers them, and frames not what later \
                ones show",
        );
    }
    let input = open_all(&files)?;
    let name = files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" ");
    let detail = match format {
        _ if extractor.wants_line() => Detail::Line,
        Format::Json | Format::Jsonraw | Format::Ek => Detail::Fields,
        Format::Pdml => Detail::Labels,
        Format::Text if tree => Detail::Labels,
        _ => Detail::Line,
    };
    let keyring = super::keyring(args.keys.as_deref())?;
    let roce_port = args.decode_as.iter().find_map(|d| match d {
        DecodeAs::Roce(port) => Some(*port),
        DecodeAs::Found => None,
    });
    let roce_port = roce_port.unwrap_or(0);
    let writer = match &args.write {
        Some(path) => Some(Writer::new(path, args.write_format, &files, args.force.existing())?),
        None => None,
    };
    // tables also count frames that the filter does not pass
    let last = filter.as_ref().and_then(Filter::last_frame).filter(|_| taps.is_empty()).unwrap_or(u64::MAX);
    let first = filter.as_ref().and_then(Filter::first_frame).filter(|_| taps.is_empty()).unwrap_or(1);
    let limits = Limits { read: args.count.unwrap_or(u64::MAX).min(last), shown: args.limit.unwrap_or(u64::MAX) };
    let at_once = args.line_buffered;
    let mut dissection = Dissection::new(keyring.clone()).with_roce_port(roce_port);
    if twice {
        let frames = args.count.unwrap_or(u64::MAX);
        let first_pass = match open_all(&files)? {
            Input::One(mut capture) => dissection::first_pass(&mut capture, keyring.clone(), roce_port, frames),
            Input::Many(mut merged) => dissection::first_pass(&mut merged, keyring.clone(), roce_port, frames),
        };
        dissection.knows(first_pass.into());
    }
    let mut conditions = if taps.wants_report() { known_bugs::conditions() } else { Vec::new() };
    conditions.iter_mut().for_each(|condition| condition.bind(&mut extractor));
    let mut job = Job {
        conditions,
        first,
        filter,
        extractor,
        detail,
        // formats for people use our form
        short: args.json_names == JsonNames::Short
            || !matches!(format, Format::Json | Format::Jsonraw | Format::Ek | Format::Pdml),
        line: Line::default(),
        dissection,
        keyring,
        roce_port,
        sink,
        taps,
        writer,
        chosen: Chosen { only: args.only.clone(), protocols: args.protocols.clone() },
        separator: args.separator.clone(),
        // only one thread can use the results of the first pass
        threads: if twice { 1 } else { super::threads(args.threads) },
    };
    match input {
        // a pipe may pause at any time, and its frames must be visible until then
        Input::One(mut capture)
            if capture.file().is_none() || out.is_terminal || at_once || job.separator.is_some() =>
        {
            let at_once = at_once || out.is_terminal;
            job.run(&mut capture, &mut out, limits, &name, at_once)
        }
        Input::One(mut capture) => match job.run_shared(&capture, &mut out, limits, &name)? {
            Shared::All => Ok(()),
            Shared::First(frames) => job.run_after(&mut capture, &mut out, limits, frames),
            Shared::None => job.run(&mut capture, &mut out, limits, &name, false),
        },
        Input::Many(mut merged) => {
            let at_once = at_once || out.is_terminal;
            job.run(&mut merged, &mut out, limits, &name, at_once)
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

/// True if this neither is a file nor looks like the name of one.
fn is_no_file(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let is_name =
        text == "-" || text.contains('/') || path.extension().is_some_and(|e| e.to_string_lossy().contains("cap"));
    !(is_name && !text.contains(' ') || path.exists())
}

/// Result of the workers that share the connections.
enum Shared {
    /// Nothing: one thread does it.
    None,
    /// So many frames; then connections turned out to have to do with each other.
    First(u64),
    /// All of it.
    All,
}

/// Destination of `-w`.
enum To {
    Stdout(io::Stdout),
    File(WholeFile),
}

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(to) => to.write(bytes),
            Self::File(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(to) => to.flush(),
            Self::File(to) => to.flush(),
        }
    }
}

/// The frames that pass, as a capture. Its header depends on the first frame, so it is begun with that, or at the end.
struct Writer {
    to: Option<io::BufWriter<To>>,
    name: PathBuf,
    format: Option<WriteFormat>,
    open: Opened,
    revision: Option<u64>,
}

enum Opened {
    No,
    Pcap(PcapWriter<io::BufWriter<To>>),
    Pcapng(PcapngWriter<io::BufWriter<To>>),
}

impl Writer {
    fn new(
        path: &Path,
        format: Option<WriteFormat>,
        inputs: &[PathBuf],
        existing: rdmascope_capture::Existing,
    ) -> Result<Self> {
        let to = match path.as_os_str() == "-" {
            true if io::stdout().is_terminal() => {
                bail!("-w -: standard output is a terminal; redirect it to a file or a program")
            }
            true => To::Stdout(io::stdout()),
            false => To::File(WholeFile::create(path, inputs, existing, Access::Private)?),
        };
        Ok(Self { to: Some(io::BufWriter::new(to)), name: path.to_owned(), format, open: Opened::No, revision: None })
    }

    fn begin(&mut self, source: &impl Source) -> Result<()> {
        use rdmascope_capture::Format as Input;
        let Some(to) = self.to.take() else { return Ok(()) };
        let metadata = source.metadata();
        let format = self.format.unwrap_or(match metadata.format {
            // pcap cannot store the interface of a frame
            Some(Input::PcapMicroseconds) if metadata.interfaces.len() < 2 => WriteFormat::Pcap,
            Some(Input::PcapNanoseconds) if metadata.interfaces.len() < 2 => WriteFormat::Nsecpcap,
            _ => WriteFormat::Pcapng,
        });
        const SNAP_LEN: u32 = 262_144;
        self.open = match format {
            WriteFormat::Pcapng => Opened::Pcapng(PcapngWriter::new(
                to,
                &self.name,
                &metadata.sections.first().cloned().unwrap_or_default(),
            )?),
            WriteFormat::Pcap | WriteFormat::Nsecpcap => {
                let link_type =
                    metadata.interfaces.first().map_or(rdmascope_capture::LinkType::ETHERNET, |i| i.link_type);
                Opened::Pcap(PcapWriter::new(to, &self.name, link_type, SNAP_LEN, format == WriteFormat::Nsecpcap)?)
            }
        };
        Ok(())
    }

    fn frame(&mut self, source: &impl Source) -> Result<()> {
        self.begin(source)?;
        match &mut self.open {
            Opened::No => {}
            Opened::Pcap(writer) => writer.write(&source.record())?,
            Opened::Pcapng(writer) => {
                if self.revision != Some(source.metadata().revision) {
                    self.revision = Some(source.metadata().revision);
                    writer.catch_up(source.metadata())?;
                }
                writer.write(&source.record())?;
            }
        }
        Ok(())
    }

    fn end(&mut self, source: &impl Source) -> Result<()> {
        self.begin(source)?;
        let written = match std::mem::replace(&mut self.open, Opened::No) {
            Opened::No => return Ok(()),
            Opened::Pcap(writer) => writer.finish()?,
            Opened::Pcapng(mut writer) => {
                writer.catch_up(source.metadata())?;
                writer.finish()?
            }
        };
        match written.into_inner().map_err(io::IntoInnerError::into_error)? {
            To::Stdout(mut to) => to.flush()?,
            To::File(file) => file.finish()?,
        }
        Ok(())
    }
}

/// Output for each frame.
enum Sink {
    /// Nothing: `-q`, or `-w`.
    Nothing,
    /// With bytes, or without.
    Lines(Lines, bool),
    Summary(Summary, bool),
    /// A few fields are written faster than they could be handed to another thread.
    Fields(Fields),
    Print(Printer),
}

/// A dissected frame that waits to be written.
struct KeptFrame {
    frame: Option<Dissected>,
    tree: Tree,
    /// Its nodes as Wireshark arranges them.
    shape: Shape,
}

struct Job {
    /// Conditions of known bugs, if a table counts findings.
    conditions: Vec<Condition>,
    /// The first frame that the filter can pass.
    first: u64,
    filter: Option<Filter>,
    extractor: Extractor,
    /// How much trees keep.
    detail: Detail,
    /// True if JSON, EK and PDML use our names and form.
    short: bool,
    line: Line,
    dissection: Dissection,
    keyring: Keyring,
    roce_port: u16,
    sink: Sink,
    taps: Taps,
    writer: Option<Writer>,
    /// Parts of a tree that are shown.
    chosen: Chosen,
    /// Text between frames.
    separator: Option<String>,
    threads: usize,
}

impl Job {
    /// Processes all frames within `limits`. A damaged capture gives the frames before the damage, and then its error.
    fn run(
        &mut self,
        source: &mut impl Source,
        out: &mut Out,
        limits: Limits,
        name: &str,
        at_once: bool,
    ) -> Result<()> {
        self.begin(&mut out.buffer, name);
        let mut kept = self.keep();
        if self.writer.is_none() && self.separator.is_none() && !at_once {
            let damage = each_at_hand(source, limits, |record, interfaces| {
                let shown = self.frame(record, interfaces, out, &mut kept);
                out.spill()?;
                Ok(shown)
            })?;
            return self.ended(out, damage);
        }
        let damage = each(source, limits, |source| {
            let shown = self.frame(&source.record(), source.interfaces(), out, &mut kept);
            if !shown {
                return Ok(false);
            }
            if let Some(writer) = &mut self.writer {
                writer.frame(source)?;
            }
            if let Some(separator) = &self.separator {
                out.buffer.extend_from_slice(separator.as_bytes());
                out.buffer.push(b'\n');
            }
            if at_once { out.write() } else { out.spill() }?;
            Ok(true)
        })?;
        if let Some(writer) = &mut self.writer {
            writer.end(source)?;
        }
        self.ended(out, damage)
    }

    /// All frames are processed, up to the damage of a capture.
    fn ended(&mut self, out: &mut Out, damage: Option<rdmascope_capture::Error>) -> Result<()> {
        self.end(&mut out.buffer);
        out.finish()?;
        damage.map_or(Ok(()), |e| Err(e.into()))
    }

    /// The same, with several threads, if the file and the output allow that.
    fn run_shared(&mut self, capture: &Capture, out: &mut Out, limits: Limits, name: &str) -> Result<Shared> {
        let Some(file) = capture.file() else { return Ok(Shared::None) };
        // passing over frames on one thread is faster than dissecting all of them on several
        let few = limits.read.saturating_sub(self.first) < self.first.saturating_sub(1);
        if few || self.threads < 2 || self.writer.is_some() || !self.taps.is_empty() || file.bytes().len() < SMALL {
            return Ok(Shared::None);
        }
        let form = match &self.sink {
            Sink::Fields(fields) if fields.is_alone() => Form::Fields(fields.clone()),
            Sink::Lines(lines, false) if lines.is_alone() => Form::Lines(lines.clone()),
            Sink::Print(printer) => Form::Print(printer.clone()),
            _ => return Ok(Shared::None),
        };
        let plan = Plan {
            form,
            extractor: self.extractor.clone(),
            filter: self.filter.clone(),
            detail: self.detail,
            short: self.short,
            chosen: self.chosen.clone(),
            keyring: self.keyring.clone(),
            roce_port: self.roce_port,
            threads: self.threads,
            held_max: sheets::HELD_MAX,
        };
        self.begin(&mut out.buffer, name);
        let by_connection =
            texts::is_possible(&plan) && share(file, self.threads, self.dissection.decode_options()) <= SHARE_MAX;
        let ended = if by_connection {
            texts::run(&plan, file, limits, |pieces| out.pass_all(pieces))
        } else {
            sheets::run(&plan, file, limits, |text| out.pass(text))
        };
        let (error, any) = match ended? {
            sheets::Shared::First(frames, _) => return Ok(Shared::First(frames)),
            sheets::Shared::All(error, any) => (error, any),
        };
        if let Sink::Print(printer) = &mut self.sink {
            printer.is_first(!any);
        }
        self.end(&mut out.buffer);
        out.finish()?;
        error.map_or(Ok(Shared::All), |e| Err(e.into()))
    }

    /// Processes the frames after the first `written`, which were written already.
    fn run_after(&mut self, source: &mut impl Source, out: &mut Out, limits: Limits, written: u64) -> Result<()> {
        let mut kept = self.keep();
        let mut number = 0;
        let damage = each(source, limits, |source| {
            number += 1;
            let before = out.buffer.len();
            let shown = self.frame(&source.record(), source.interfaces(), out, &mut kept);
            if number <= written {
                out.buffer.truncate(before);
            }
            out.spill()?;
            Ok(shown)
        })?;
        self.ended(out, damage)
    }

    fn keep(&self) -> KeptFrame {
        let mut tree = Tree::new();
        tree.detail = self.detail;
        KeptFrame { frame: None, tree, shape: Shape::new(self.short) }
    }

    fn begin(&self, out: &mut Vec<u8>, name: &str) {
        match &self.sink {
            Sink::Print(Printer::Json(_)) => Json::begin(out),
            Sink::Print(Printer::Pdml(_)) => Pdml::begin(out, name),
            Sink::Fields(fields) => fields.begin(out),
            Sink::Lines(lines, _) => lines.begin(out),
            Sink::Print(Printer::Tree(..) | Printer::Ek(_)) | Sink::Summary(..) | Sink::Nothing => {}
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        match &self.sink {
            Sink::Print(Printer::Json(json)) => json.end(out),
            Sink::Print(Printer::Pdml(_)) => Pdml::end(out),
            Sink::Summary(summary, true) => crate::report::summary::render(summary, out),
            Sink::Summary(summary, false) => summary.text(out),
            Sink::Lines(lines, _) => lines.end(out),
            Sink::Fields(fields) => fields.end(out),
            Sink::Print(Printer::Tree(..) | Printer::Ek(_)) | Sink::Nothing => {}
        }
        if self.taps.wants_report() {
            self.taps.report(&self.dissection.finish());
        }
        self.taps.end(out);
    }

    /// A frame is dissected, and the extractor has its fields: for the tables.
    fn tap(&mut self, d: &Dissected, record: &Record<'_>) {
        self.taps.frame(d, &self.extractor);
        let Record { link_type, wire_len, interface, .. } = *record;
        let meta = FrameMeta { number: d.number, time_ns: d.time_ns, link_type, wire_len, interface };
        for condition in &self.conditions {
            condition.check(&meta, &self.extractor, self.dissection.analysis());
        }
    }

    /// One frame; whether it was shown.
    fn frame(&mut self, record: &Record<'_>, interfaces: &[Interface], out: &mut Out, kept: &mut KeptFrame) -> bool {
        if self.dissection.frames() + 1 < self.first {
            self.dissection.pass(record);
            return false;
        }
        if matches!(self.sink, Sink::Lines(_, false) | Sink::Summary(..) | Sink::Nothing) {
            return self.by_line(record, interfaces, &mut out.buffer);
        }
        if matches!(self.sink, Sink::Fields(_)) {
            self.extractor.begin();
            let d = self.dissection.frame(record, interfaces, &mut self.extractor);
            self.tap(&d, record);
            let shown = self.filter.as_ref().is_none_or(|f| f.matches(&self.extractor));
            if shown && let Sink::Fields(fields) = &mut self.sink {
                fields.frame(&mut out.buffer, &d, &self.extractor, &mut Marks::default());
            }
            return shown;
        }
        if !self.fill(record, interfaces, kept) {
            return false;
        }
        match (&mut self.sink, &kept.frame) {
            (Sink::Print(printer), Some(d)) => {
                printer.frame(&mut out.buffer, d, &kept.tree, &kept.shape, &mut Marks::default())
            }
            (Sink::Lines(lines, _), Some(d)) => {
                let tree = &kept.tree;
                lines.frame(&mut out.buffer, d, tree.protocol, &tree.info, !tree.faults.is_empty());
                hex::frame(&mut out.buffer, tree, out.color);
            }
            _ => {}
        }
        true
    }

    fn by_line(&mut self, record: &Record<'_>, interfaces: &[Interface], out: &mut Vec<u8>) -> bool {
        self.line.begin();
        let d = if self.filter.is_none() && self.taps.is_empty() {
            self.dissection.frame(record, interfaces, &mut self.line)
        } else {
            self.extractor.begin();
            let d = self.dissection.frame(record, interfaces, &mut Pair(&mut self.extractor, &mut self.line));
            self.tap(&d, record);
            if self.filter.as_ref().is_some_and(|f| !f.matches(&self.extractor)) {
                return false;
            }
            d
        };
        let Line { protocol, info, faults, .. } = &self.line;
        match &mut self.sink {
            Sink::Lines(lines, _) => lines.frame(out, &d, protocol, info, *faults > 0),
            Sink::Summary(summary, _) => summary.frame(&d, protocol, *faults > 0),
            Sink::Fields(_) | Sink::Print(_) | Sink::Nothing => {}
        }
        true
    }

    /// Dissects a frame for output. Returns true if it is shown.
    fn fill(&mut self, record: &Record<'_>, interfaces: &[Interface], kept: &mut KeptFrame) -> bool {
        kept.tree.begin(record.bytes);
        let d = self.dissection.frame(record, interfaces, &mut kept.tree);
        let mut passes = true;
        if self.filter.is_some() || !self.taps.is_empty() {
            self.extractor.load(&kept.tree);
            self.tap(&d, record);
            passes = self.filter.as_ref().is_none_or(|f| f.matches(&self.extractor));
        }
        kept.frame = Some(d);
        if passes {
            self.chosen.choose(&mut kept.tree);
            kept.shape.apply(&mut kept.tree);
        }
        passes
    }
}

/// Goes through the frames of a capture within the limits; `frame` returns true if a frame was shown. Returns the error
/// that ended the capture early, if any.
fn each<R: Source>(
    source: &mut R,
    limits: Limits,
    mut frame: impl FnMut(&R) -> Result<bool>,
) -> Result<Option<rdmascope_capture::Error>> {
    let mut bar = Bar::new();
    let Limits { mut read, mut shown } = limits;
    while read > 0 && shown > 0 {
        match source.advance() {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => return Ok(Some(e)),
        }
        read -= 1;
        shown -= u64::from(frame(source)?);
        bar.frame(source);
    }
    Ok(None)
}

/// The same where only the frame's bytes and the interfaces are needed: those in memory are processed in one go.
fn each_at_hand(
    source: &mut impl Source,
    limits: Limits,
    mut frame: impl FnMut(&Record<'_>, &[Interface]) -> Result<bool>,
) -> Result<Option<rdmascope_capture::Error>> {
    let mut bar = Bar::new();
    let Limits { mut read, mut shown } = limits;
    let (mut interfaces, mut revision) = (Vec::new(), None);
    while read > 0 && shown > 0 {
        match source.advance() {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => return Ok(Some(e)),
        }
        if revision != Some(source.metadata().revision) {
            revision = Some(source.metadata().revision);
            interfaces = source.interfaces().to_vec();
        }
        let before = read;
        let mut one = |record: &Record<'_>| {
            read -= 1;
            shown -= u64::from(frame(record, &interfaces)?);
            Ok(read > 0 && shown > 0)
        };
        if one(&source.record())? {
            let mut error = None;
            source.run(&mut |record| match one(record) {
                Ok(goes_on) => goes_on,
                Err(e) => {
                    error = Some(e);
                    false
                }
            });
            if let Some(e) = error {
                return Err(e);
            }
        }
        bar.frames(before - read, source);
    }
    Ok(None)
}
