//! `rdmascope anonymize IN OUT`: a capture that can be shared.

use crate::analysis::meta_of;
use crate::cli::{Anonymize, Color, Contents, Dropped, KeptKind, TextOrJson};
use crate::input::Bar;
use crate::report::schema::object_of;
use crate::report::words::{count, grouped, size as bytes};
use crate::stdout::Out;
use anyhow::{Context, Result, bail};
use rdmascope_capture::{Interface, Metadata, Name, OpenOptions, PcapngWriter, Record, Section, Source, open};
use rdmascope_dissector::field::Privacy;
use rdmascope_dissector::render::escaped;
use rdmascope_report::pool::Pool;
use rdmascope_share::{Anonymizer, Extra, Frame, FrameBatch, NewFrames, Options, Payload, Tally};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

/// Length of a random key in bytes.
const KEY: usize = 32;
/// Limit of rows about blanked bytes in the text.
const SHOWN: usize = 12;

pub(super) fn run(args: &Anonymize, color: Color) -> Result<ExitCode> {
    let key = match &args.key_file {
        Some(path) => {
            let key = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
            if key.is_empty() {
                bail!("{} is empty: a key needs at least one byte", path.display());
            }
            key
        }
        None => {
            let mut key = vec![0; KEY];
            getrandom::fill(&mut key)
                .map_err(|e| anyhow::anyhow!("the system provides no random bytes for a key: {e}"))?;
            key
        }
    };
    let options = Options {
        key,
        payload: match args.payload {
            Contents::Zero => Payload::Zero,
            Contents::Stream => Payload::Stream,
        },
        keep: args.keep.iter().map(|kind| privacy(*kind)).collect(),
        drop: args.drop.iter().map(|kind| extra(*kind)).collect(),
    };
    let threads = super::threads(args.threads);
    let keys: Vec<PathBuf> = args.key_file.iter().cloned().collect();
    let mut source = open(&args.files.input, OpenOptions::new())?;
    let section = Section { application: Some("rdmascope anonymize".to_owned()), ..Section::default() };
    let Some(whole) = args.files.create(&keys)? else {
        let done = copy(&mut source, options, threads, PcapngWriter::create("-", &section)?)?;
        return done.error.map_or(Ok(ExitCode::SUCCESS), |e| Err(e).context("the part before was written"));
    };
    let done = copy(&mut source, options, threads, PcapngWriter::new(whole, &args.files.output, &section)?)?;
    done.output.finish()?;
    let mut out = Out::new(color);
    match args.format {
        TextOrJson::Text => text(&done.tally, done.left_out, &args.files.output, &mut out.buffer)?,
        TextOrJson::Json => {
            writeln!(out.buffer, "{}", serde_json::to_string_pretty(&object(&done.tally, done.left_out))?)?
        }
    }
    out.finish()?;
    done.error.map_or(Ok(ExitCode::SUCCESS), |e| Err(e).context("the part before was written"))
}

fn privacy(kind: KeptKind) -> Privacy {
    match kind {
        KeptKind::Mac => Privacy::Mac,
        KeptKind::Address => Privacy::Address,
        KeptKind::Name => Privacy::Name,
        KeptKind::Id => Privacy::Id,
        KeptKind::Sid => Privacy::Sid,
        KeptKind::User => Privacy::User,
    }
}

fn extra(kind: Dropped) -> Extra {
    match kind {
        Dropped::Memory => Extra::Memory,
        Dropped::Time => Extra::Time,
        Dropped::Size => Extra::Size,
    }
}

struct Done<W> {
    tally: Tally,
    /// Comments, names, secrets and descriptions that were not copied.
    left_out: u64,
    output: W,
    error: Option<rdmascope_capture::Error>,
}

/// Copies the frames up to the first damage of the capture. One thread reads, analyzes and writes; others make the new
/// frames.
fn copy<S: Source, W: Write>(
    source: &mut S,
    options: Options,
    threads: usize,
    mut writer: PcapngWriter<W>,
) -> Result<Done<W>> {
    let mut anonymizer: Anonymizer<Record<'static>> = Anonymizer::new(options);
    let mut bar = Bar::before_output();
    let (mut number, mut time_ns, mut left_out) = (0, 0, 0);
    let (pool, workers) = (Pool::default(), threads - 1);
    let error = thread::scope(|scope| -> Result<Option<rdmascope_capture::Error>> {
        let _ending = pool.closing();
        for _ in 0..workers {
            scope.spawn(|| pool.work(make));
        }
        let mut output = OrderedOutput { pool: &pool, most: 2 * workers, described: 0 };
        let error = loop {
            match source.advance() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(e) => break Some(e),
            }
            output.describe(source.metadata());
            let record = source.record();
            number += 1;
            let meta = meta_of(&record, number, &mut time_ns);
            left_out += record.comments().count() as u64;
            let frame = Frame {
                time_ns: meta.time_ns,
                link_type: meta.link_type,
                wire_len: meta.wire_len,
                interface: meta.interface,
                bytes: record.bytes,
            };
            anonymizer.hold(record.holding(&[]), &frame);
            output.batches(&mut anonymizer, &mut writer)?;
            bar.frame(source);
        };
        anonymizer.end();
        output.batches(&mut anonymizer, &mut writer)?;
        output.describe(source.metadata());
        output.write(&mut anonymizer, &mut writer, 0)?;
        Ok(error)
    })?;
    let metadata = source.metadata();
    for (n, interface) in metadata.interfaces.iter().enumerate() {
        if let Some(statistics) = &interface.statistics {
            writer.write_statistics(n as u32, statistics)?;
        }
    }
    left_out += texts_beside_frames(metadata);
    Ok(Done { tally: anonymizer.tally(), left_out, output: writer.finish()?, error })
}

/// An element of the output file.
enum Item {
    Interface(Box<Interface>),
    Frames(Box<NewFrames<Record<'static>>>),
}

/// The output in order. Workers make the new frames; the reading thread writes them in the order of batches, so that
/// the file does not depend on the number of workers.
struct OrderedOutput<'p> {
    pool: &'p Pool<FrameBatch<Record<'static>>, Item>,
    /// Maximum number of elements that are not written.
    most: usize,
    /// Number of interfaces that were described.
    described: usize,
}

impl OrderedOutput<'_> {
    /// Adds descriptions of new interfaces: the format of their frames, but nothing about the machine.
    fn describe(&mut self, metadata: &Metadata) {
        for interface in metadata.interfaces.get(self.described..).unwrap_or(&[]) {
            let plain = Interface {
                snap_len: interface.snap_len,
                fcs_len: interface.fcs_len,
                speed: interface.speed,
                ..Interface::new(interface.link_type)
            };
            let name = interface.name.as_ref().map(|_| format!("if{}", self.described));
            self.pool.put(Item::Interface(Box::new(Interface { name, ..plain })));
            self.described += 1;
        }
    }

    /// Hands finished batches to the workers, and writes the new frames that are ready.
    fn batches<W: Write>(
        &self,
        anonymizer: &mut Anonymizer<Record<'static>>,
        writer: &mut PcapngWriter<W>,
    ) -> Result<()> {
        while let Some(batch) = anonymizer.next_batch() {
            self.pool.push(batch);
            self.write(anonymizer, writer, self.most)?;
        }
        Ok(())
    }

    /// Writes ready elements until at most `most` are left.
    fn write<W: Write>(
        &self,
        anonymizer: &mut Anonymizer<Record<'static>>,
        writer: &mut PcapngWriter<W>,
        most: usize,
    ) -> Result<()> {
        while let Some(item) = self.pool.next(most, make)? {
            let mut made = match item {
                Item::Interface(interface) => {
                    writer.add_interface(&interface)?;
                    continue;
                }
                Item::Frames(made) => made,
            };
            let mut failed = None;
            made.frames(|record, bytes| {
                if failed.is_none() {
                    failed = writer.write(&record.holding(bytes)).err();
                }
            });
            failed.map_or(Ok(()), Err)?;
            anonymizer.give_back(*made);
        }
        Ok(())
    }
}

fn make(batch: FrameBatch<Record<'static>>) -> Item {
    Item::Frames(Box::new(batch.make()))
}

/// Texts beside the frames, which are not copied.
fn texts_beside_frames(metadata: &Metadata) -> u64 {
    let section = |s: &Section| s.comments.len() + [&s.hardware, &s.os, &s.application].into_iter().flatten().count();
    let interface = |i: &Interface| {
        i.comments.len() + [&i.name, &i.description, &i.hardware, &i.os, &i.filter].into_iter().flatten().count()
    };
    let names: &[Name] = &metadata.names;
    let all = metadata.sections.iter().map(section).sum::<usize>()
        + metadata.interfaces.iter().map(interface).sum::<usize>()
        + names.len()
        + metadata.secrets.len();
    all as u64
}

/// Name of a kind in a sentence.
fn words(kind: Privacy) -> &'static str {
    match kind {
        Privacy::Mac => "hardware addresses",
        Privacy::Address => "IP addresses and GIDs",
        Privacy::Name => "names and paths",
        Privacy::Id => "ids: GUIDs, handles, states",
        Privacy::Sid => "security identifiers",
        Privacy::User => "numbers of users and groups",
        Privacy::Secret => "secrets: hashes, signatures, tickets",
        Privacy::Data => "contents of files",
        Privacy::Keep | Privacy::Inside | Privacy::Ber => "others",
    }
}

fn text(tally: &Tally, left_out: u64, output: &Path, out: &mut Vec<u8>) -> Result<()> {
    writeln!(out, "{}: {}", escaped(&output.display().to_string()), count(tally.frames, "frame"))?;
    writeln!(out, "\nReplaced")?;
    for (kind, times, all) in &tally.replaced {
        writeln!(out, "  {:<38} {:>18}, {}", words(*kind), count(*times, "time"), bytes(*all))?;
    }
    for (kind, times, all) in &tally.dropped {
        let words = match kind {
            Extra::Memory => "remote keys and memory addresses",
            Extra::Time => "times of files and hosts",
            Extra::Size => "sizes of files",
        };
        writeln!(out, "  {words:<38} {:>18}, {}", count(*times, "time"), bytes(*all))?;
    }
    if left_out > 0 {
        writeln!(out, "  {:<38} {:>12} left out", "comments, descriptions, names, keys", grouped(left_out))?;
    }
    if !tally.blanked.is_empty() {
        writeln!(out, "\nBlanked: bytes that no field claims, by the field that holds them")?;
        for (name, times, all) in tally.blanked.iter().take(SHOWN) {
            writeln!(out, "  {name:<38} {:>17}, {}", count(*times, "run"), bytes(*all))?;
        }
        if let Some(more) = tally.blanked.len().checked_sub(SHOWN).filter(|n| *n > 0) {
            writeln!(out, "  and {more} others: --format json has all")?;
        }
    }
    for (name, times, all) in &tally.untraced {
        writeln!(
            out,
            "\n{} × {name} ({}) could not be traced to its frames, where it is blanked.",
            grouped(*times),
            bytes(*all)
        )?;
    }
    if tally.sealed > 0 {
        writeln!(
            out,
            "\nBlanked whole: {}, which no key decrypts any more.",
            count(tally.sealed, "encrypted message")
        )?;
    }
    if tally.recompressed > 0 {
        writeln!(
            out,
            "\nDecompressed, replaced and compressed again: {}.",
            count(tally.recompressed, "compressed message")
        )?;
    }
    if tally.compressed > 0 {
        writeln!(
            out,
            "\nBlanked whole: {}, which an analysis cannot read any more.",
            count(tally.compressed, "compressed message")
        )?;
    }
    if tally.replaced.iter().any(|(kind, ..)| *kind == Privacy::Secret) {
        writeln!(out, "\nSignatures are replaced and cannot be verified.")?;
    }
    if tally.sums > 0 {
        writeln!(out, "\nWrong now: {} of datagrams in fragments.", count(tally.sums, "checksum"))?;
    }
    Ok(())
}

/// The JSON Schema of the report.
pub(super) fn schema() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let rows = |name: &'static str, text| {
        let rows = vec![
            (name, true, json!({"type": "string"}), text),
            ("times", true, count(), "How often."),
            ("bytes", true, count(), "Bytes of all of them."),
        ];
        json!({"type": "array", "items": object_of("One kind.", rows)})
    };
    let version = "Version of this format. Within a version, keys are only added.";
    let mut schema = object_of(
        "What was replaced, blanked and left out.",
        vec![
            ("rdmascope", true, json!({"type": "string"}), "Version of the program."),
            ("schema", true, json!({"const": 1}), version),
            ("frames", true, count(), "Frames written."),
            ("replaced", true, rows("kind", "The kind of value."), "Replaced values, by kind."),
            ("left_out", true, count(), "Comments, descriptions, names and keys beside the frames."),
            (
                "blanked",
                true,
                rows("name", "The field that holds them."),
                "Blanked bytes that no field claims; times counts runs.",
            ),
            (
                "untraced",
                true,
                rows("name", "The kind of message."),
                "Reassembled messages whose bytes were not found in frames, where they are blanked.",
            ),
            ("encrypted", true, count(), "Encrypted messages, which are blanked."),
            ("compressed", true, count(), "Compressed messages that are blanked."),
            (
                "recompressed",
                true,
                count(),
                "Compressed messages that were decompressed, replaced and compressed again.",
            ),
            ("checksums_not_mended", true, count(), "Checksums of fragmented datagrams, which are wrong now."),
        ],
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("rdmascope anonymize --format json");
    schema
}

fn object(tally: &Tally, left_out: u64) -> Value {
    let rows = |rows: &[(&'static str, u64, u64)]| -> Vec<Value> {
        rows.iter().map(|(name, times, bytes)| json!({"name": name, "times": times, "bytes": bytes})).collect()
    };
    let dropped = tally.dropped.iter().map(|(kind, times, bytes)| (kind.key(), times, bytes));
    let replaced = tally.replaced.iter().map(|(kind, times, bytes)| (kind.key(), times, bytes)).chain(dropped);
    json!({
        "rdmascope": env!("CARGO_PKG_VERSION"),
        "schema": 1,
        "frames": tally.frames,
        "replaced": replaced.map(|(kind, times, bytes)| json!({"kind": kind, "times": times, "bytes": bytes})).collect::<Vec<_>>(),
        "left_out": left_out,
        "blanked": rows(&tally.blanked),
        "untraced": rows(&tally.untraced),
        "encrypted": tally.sealed,
        "compressed": tally.compressed,
        "recompressed": tally.recompressed,
        "checksums_not_mended": tally.sums,
    })
}
