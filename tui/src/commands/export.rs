//! `rdmascope export`: results in formats that other tools read.

use crate::analysis::{self, Run};
use crate::cli::{Captured, Color, Export, Exported, Force, Objects};
use crate::input;
use crate::stdout::Out;
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::report::Sink;
use rdmascope_capture::{Access, OpenOptions, PcapngWriter, Section, Source, WholeFile, open};
use rdmascope_dissector::render::escaped;
use rdmascope_plugins::annotated::{self, Collector, Comments};
use rdmascope_plugins::payloads::Payloads;
use rdmascope_plugins::wireshark::{self, Done, Places, Tried};
#[cfg(feature = "parquet")]
use rdmascope_report::ahead::{self, How, Mapped};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) fn run(args: &Export, color: Color) -> Result<ExitCode> {
    match &args.what {
        Exported::Annotated { capture, output, force } => annotate(capture, output, *force, color),
        Exported::Wireshark { install: true, dir, .. } => install(dir.as_deref(), color),
        Exported::Wireshark { remove: true, dir, .. } => remove(dir.as_deref(), color),
        Exported::Wireshark { output, force, .. } => wireshark(output.as_deref(), *force, color),
        #[cfg(feature = "parquet")]
        Exported::Parquet { capture, folder } => parquet(capture, folder, color),
        #[cfg(not(feature = "parquet"))]
        Exported::Parquet { .. } => {
            bail!("this rdmascope was built without Parquet: build it with its default features")
        }
        Exported::Payloads { capture, folder } => payloads(capture, folder, color),
    }
}

fn analyze<S: Sink>(file: &Path, options: Options, sink: S) -> Result<analysis::Analysis<S>> {
    let files = [PathBuf::from(file)];
    let captures = input::open_all(&files)?;
    let run = Run { options, threads: super::threads(None), small: analysis::SMALL, filter: None, frames: u64::MAX };
    Ok(analysis::run(captures, vec![file.display().to_string()], run, sink))
}

fn annotate(capture: &Captured, output: &Path, force: Force, color: Color) -> Result<ExitCode> {
    let file = capture.file.as_path();
    if file == Path::new("-") {
        bail!("standard input cannot be read twice: export annotated needs a file");
    }
    // made now, so that errors show before the work
    let whole = match output == Path::new("-") {
        true => None,
        false => Some(WholeFile::create(output, &capture.paths(), force.existing(), Access::Private)?),
    };
    let options = Options { keyring: super::keyring(capture.keys.as_deref())?, ..Options::default() };
    let done = analyze(file, options, Collector::default())?;
    let comments = Comments::new(&done.report, &done.sink);
    let mut source = open(file, OpenOptions::new())?;
    let section = Section {
        comments: vec![format!(
            "Annotated by rdmascope {}: {} findings",
            env!("CARGO_PKG_VERSION"),
            done.report.findings.len()
        )],
        application: Some("rdmascope".to_owned()),
        ..source.metadata().sections.first().cloned().unwrap_or_default()
    };
    let Some(whole) = whole else {
        let writer = PcapngWriter::create(output, &section)?;
        annotated::write(&mut source, &comments, writer)?;
        return match done.error {
            Some(error) => Err(error).context("the part before was written"),
            None => Ok(ExitCode::SUCCESS),
        };
    };
    let (frames, whole) = annotated::write(&mut source, &comments, PcapngWriter::new(whole, output, &section)?)?;
    whole.finish()?;
    let mut out = Out::new(color);
    let commented = comments.frames();
    writeln!(
        out.buffer,
        "{}: {frames} frames, {commented} of them with comments",
        escaped(&output.display().to_string())
    )?;
    out.finish()?;
    match done.error {
        Some(error) => Err(error).context("the part before was written"),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn shown(path: &Path) -> String {
    escaped(&path.display().to_string())
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("the path of this program is not known")
}

const NO_ENGINE: &str = "The engine is not beside this program: without it the plugin decodes MPA on SMB's ports, and \
    analyzes nothing. The packages \
    contain it. So does the archive of the static program, in the same folder. `cargo build -p rdmascope-engine` \
    builds it.";

fn install(folder: Option<&Path>, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    let program = this_program()?;
    let engine = wireshark::engine_of(&program);
    let mut plugin = None;
    for done in wireshark::install(&Places::of_environment(), folder, &program, engine.as_deref())? {
        match done {
            Done::Plugin(path) => {
                writeln!(out.buffer, "{}: the plugin", shown(&path))?;
                plugin = Some(path);
            }
            Done::Replaced(path) => {
                writeln!(out.buffer, "{}: the plugin, in place of the one that was there", shown(&path))?;
                plugin = Some(path);
            }
            Done::Engine(path) => writeln!(out.buffer, "{}: its engine", shown(&path))?,
            Done::Extcap(path) => {
                writeln!(out.buffer, "{}: a link to this program, for its capture sources", shown(&path))?
            }
            Done::Removed(_) => {}
        }
    }
    if engine.is_none() {
        writeln!(out.buffer, "{NO_ENGINE}")?;
    }
    let mut works = true;
    if let Some(plugin) = &plugin {
        match wireshark::works(plugin) {
            Tried::NoTshark => writeln!(out.buffer, "No tshark was found, so they were not tested.")?,
            Tried::Analyzes(version) => writeln!(out.buffer, "Tried: {} loads both, and analyzes.", escaped(&version))?,
            Tried::Decodes(version) => {
                works = engine.is_none();
                writeln!(out.buffer, "Tried: {} loads the plugin without its engine.", escaped(&version))?;
            }
            Tried::Not(version, why) => {
                works = false;
                writeln!(out.buffer, "Tried: {} does not load the plugin. {}", escaped(&version), escaped(&why))?;
            }
        }
    }
    writeln!(
        out.buffer,
        "Wireshark and tshark load them at their next start. `rdmascope export wireshark --remove` removes them."
    )?;
    out.finish()?;
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remove(folder: Option<&Path>, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    let done = wireshark::remove(&Places::of_environment(), folder)?;
    for done in &done {
        if let Done::Removed(path) = done {
            writeln!(out.buffer, "{}: removed", shown(path))?;
        }
    }
    if done.is_empty() {
        writeln!(out.buffer, "Nothing of rdmascope is installed.")?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn wireshark(output: Option<&Path>, force: Force, color: Color) -> Result<ExitCode> {
    let mut out = Out::new(color);
    let engine = wireshark::engine_of(&this_program()?);
    let lua = wireshark::lua(engine.as_deref());
    if output == Some(Path::new("-")) {
        out.buffer.extend_from_slice(lua.as_bytes());
    } else {
        let path = output.unwrap_or(Path::new(wireshark::FILE));
        let mut file = WholeFile::create(path, &[], force.existing(), Access::Umask)?;
        file.write_all(lua.as_bytes()).with_context(|| format!("{} cannot be written", shown(path)))?;
        file.finish()?;
        match &engine {
            Some(engine) => writeln!(out.buffer, "{}: the plugin; its engine is {}", shown(path), shown(engine))?,
            None => writeln!(out.buffer, "{}: the plugin. {NO_ENGINE}", shown(path))?,
        }
        writeln!(out.buffer, "Try it with tshark -X lua_script:{}", shown(path))?;
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "parquet")]
fn parquet(capture: &Captured, folder: &Path, color: Color) -> Result<ExitCode> {
    let file = capture.file.as_path();
    use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
    use rdmascope_capture::Record;
    use rdmascope_dissector::{frame, trace::Off};
    use rdmascope_plugins::tables::{FrameRow, Tables};
    let threads = super::threads(None);
    let name =
        if file == Path::new("-") { "stdin".into() } else { file.file_name().unwrap_or_default().to_string_lossy() };
    let mut source = open(file, OpenOptions::new())?;
    let tables = Tables::new(folder, &name, threads)?;
    let mut pipeline = Pipeline::with_sink(
        Options { keyring: super::keyring(capture.keys.as_deref())?, ..Options::default() },
        tables,
    );
    let decode = pipeline.decode_options();
    let mut bar = input::Bar::before_output();
    // of a record: whether it has a time, and its captured bytes
    let keep = |record: &Record<'_>| (record.has_time(), u32::try_from(record.bytes.len()).unwrap_or(u32::MAX));
    let add = |pipeline: &mut Pipeline<Tables>,
               meta: &FrameMeta,
               packet: &frame::Packet<'_>,
               (has_time, captured_length): (bool, u32)| {
        let facts = pipeline.facts();
        let row = FrameRow {
            frame: meta.number,
            time_ns: has_time.then_some(meta.time_ns),
            interface: meta.interface,
            wire_length: meta.wire_len,
            captured_length,
            protocol: facts.layer.name(),
            addresses: [packet.src, packet.dst],
            place: facts.place,
            exchange: facts.exchange,
            retransmission: facts.retransmission,
        };
        pipeline.sink().frame(row);
    };
    let mut search = crate::known_bugs::Search::new();
    let files = source
        .files()
        .filter(|files| search.is_none() && threads > 1 && files.iter().any(|f| f.bytes().len() >= analysis::SMALL));
    let error = match files {
        Some(files) => {
            let total = files.iter().map(|file| file.bytes().len() as u64).sum();
            // one thread writes
            let how = How { workers: (threads - 2).max(1), options: decode, described: false };
            ahead::decoded(
                &mut source,
                &files,
                &how,
                |record, _| keep(record),
                |batch| {
                    bar.at(batch.done, total);
                    for (meta, packet, kept) in batch.groups().flatten() {
                        pipeline.packet(meta, packet, &mut Off);
                        add(&mut pipeline, meta, packet, *kept);
                    }
                    true
                },
            )
        }
        None => {
            let mut past = crate::dissection::Past::default();
            let (mut number, mut time_ns) = (0, 0);
            loop {
                match source.advance() {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(e) => break Some(e),
                }
                let record = source.record();
                number += 1;
                let meta = analysis::meta_of(&record, number, &mut time_ns);
                let packet = match &mut search {
                    Some(search) => {
                        let listener = search.begin(&record, source.interfaces(), past.before(&meta));
                        let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &decode, listener);
                        pipeline.packet(&meta, &packet, listener);
                        search.end(&meta, &mut pipeline);
                        packet
                    }
                    None => {
                        let packet = frame::decode(meta.link_type, record.bytes, meta.wire_len, &decode, &mut Off);
                        pipeline.packet(&meta, &packet, &mut Off);
                        packet
                    }
                };
                add(&mut pipeline, &meta, &packet, keep(&record));
                bar.frame(&source);
            }
        }
    };
    drop(bar);
    let (report, tables) = pipeline.finish();
    let mut out = Out::new(color);
    for (table, rows) in tables.finish(&report)? {
        writeln!(out.buffer, "{table}: {rows} rows")?;
    }
    out.finish()?;
    match error {
        Some(error) => Err(error).context("the part before was written"),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn payloads(capture: &Captured, folder: &Path, color: Color) -> Result<ExitCode> {
    contents(&capture.file, capture.keys.as_deref(), Payloads::new(folder)?, color)
}

/// `dissect --export-objects`.
pub(super) fn objects(
    files: &[PathBuf],
    keys: Option<&Path>,
    objects: &Objects,
    force: Force,
    color: Color,
) -> Result<ExitCode> {
    let [file] = files else { bail!("--export-objects reads one capture") };
    let replace = matches!(force.existing(), rdmascope_capture::Existing::Replace);
    let payloads = Payloads::with(&objects.folder, replace, Some(objects.family));
    contents(file, keys, payloads.context("--force writes into a folder that is not empty")?, color)
}

fn contents(file: &Path, keys: Option<&Path>, sink: Payloads, color: Color) -> Result<ExitCode> {
    let options = Options { payloads: true, keyring: super::keyring(keys)?, ..Options::default() };
    let done = analyze(file, options, sink)?;
    let skipped = done.sink.skipped;
    let files = done.sink.finish()?;
    let mut out = Out::new(color);
    for (path, written) in &files {
        let name = escaped(&path.display().to_string());
        write!(out.buffer, "{name}: {} bytes read, {} bytes written", written.read, written.written)?;
        match written.holes() {
            0 => writeln!(out.buffer)?,
            holes => writeln!(out.buffer, ", {holes} bytes in between not captured")?,
        }
    }
    if files.is_empty() {
        writeln!(out.buffer, "no READ or WRITE with contents in {}", escaped(&file.display().to_string()))?;
    }
    if skipped > 0 {
        writeln!(out.buffer, "{skipped} pieces left out: too many files, or offsets that are too large")?;
    }
    out.finish()?;
    match done.error {
        Some(error) => Err(error).context("the part before was written"),
        None => Ok(ExitCode::SUCCESS),
    }
}
