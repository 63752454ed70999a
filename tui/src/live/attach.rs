//! Following captures that other programs write: they are found among the processes of this machine, read from the
//! current file on to the next ones of a series (`-b`), and passed on as one pcapng stream.

use crate::cli::{Cli, Command};
use crate::live::Signals;
use crate::live::files::is_broken_pipe;
use anyhow::{Context, Result};
use clap::Parser;
use rdmascope_capture::{Capture, Decapsulator, Follow, OpenOptions, PcapngWriter, Source, open};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at a file that has ended for now.
const WAIT: Duration = Duration::from_millis(100);

/// A `rdmascope capture` that runs and writes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) process: u32,
    pub(crate) interfaces: Vec<String>,
    /// The file, or that from whose name those of a series are made.
    pub(crate) path: PathBuf,
}

/// The running captures of this machine, from `processes`, which is /proc. Empty on systems other than Linux.
pub(crate) fn running(processes: &Path) -> Vec<Running> {
    let mut found: Vec<Running> = std::fs::read_dir(processes)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let process: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let arguments: Vec<String> = line
                .split(|b| *b == 0)
                .filter(|a| !a.is_empty())
                .map(|a| String::from_utf8_lossy(a).into_owned())
                .collect();
            if Path::new(arguments.first()?).file_name()? != "rdmascope" {
                return None;
            }
            let Command::Capture(capture) = Cli::try_parse_from(&arguments).ok()?.command else { return None };
            let path = capture.write.filter(|p| p != Path::new("-"))?;
            // for processes of other users, the working directory of a relative path is not readable
            let path =
                if path.is_absolute() { path } else { std::fs::read_link(entry.path().join("cwd")).ok()?.join(path) };
            Some(Running { process, interfaces: capture.live.interfaces, path })
        })
        .collect();
    found.sort_by_key(|r| r.process);
    found
}

/// Options for reading a capture.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    /// True to skip frames that are already in the file.
    pub(crate) from_now: bool,
    pub(crate) decapsulate: bool,
    /// The process that writes it: with it, the capture is over.
    pub(crate) process: Option<u32>,
}

/// Writes the capture at `path` into `to`, including later frames, until it is stopped, the reader has gone, or the
/// capture ends.
pub(crate) fn attach(path: &Path, to: File, name: &Path, how: &How, signals: &Signals) -> Result<()> {
    let mut path =
        if path.exists() { path.to_owned() } else { of_series(path, 0).pop().unwrap_or_else(|| path.to_owned()) };
    let mut source = opened(&path)?;
    let mut writer: Option<PcapngWriter<File>> = None;
    let mut to = Some(to);
    let mut decapsulator = how.decapsulate.then(Decapsulator::default);
    let is_regular = std::fs::metadata(&path).is_ok_and(|m| m.is_file());
    // whether the end was reached after the reason to go on elsewhere was there
    let mut ended = false;
    let mut skips = how.from_now;
    let result = loop {
        let is_frame = source.advance()?;
        if writer.is_none()
            && !source.interfaces().is_empty()
            && let Some(to) = to.take()
        {
            writer =
                Some(PcapngWriter::new(to, name, &source.metadata().sections.first().cloned().unwrap_or_default())?);
        }
        if is_frame {
            let Some(writer) = writer.as_mut().filter(|_| !skips) else { continue };
            let mut record = source.record();
            let done = match &mut decapsulator {
                Some(decapsulator) => {
                    record = decapsulator.frame(record, source.interfaces());
                    let described = writer.described();
                    decapsulator.interfaces().iter().skip(described).try_for_each(|i| writer.add_interface(i).map(drop))
                }
                None => writer.catch_up(source.metadata()),
            };
            if let Err(e) = done.and_then(|()| writer.write(&record)) {
                break Err(e);
            }
            if signals.stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            continue;
        }
        skips = false;
        if let Some(writer) = &mut writer
            && let Err(e) = writer.flush()
        {
            break Err(e);
        }
        if signals.stop.load(Ordering::Relaxed) || !is_regular {
            break Ok(());
        }
        let next = number_of(&path).and_then(|n| of_series(&path, n + 1).into_iter().next());
        let is_over = next.is_none() && how.process.is_some_and(|p| !Path::new("/proc").join(p.to_string()).exists());
        if !ended {
            ended = next.is_some() || is_over;
        } else if let Some(next) = next {
            (source, path, ended) = (opened(&next)?, next, false);
            continue;
        } else if is_over {
            break Ok(());
        }
        std::thread::sleep(WAIT);
    };
    match result.and_then(|()| writer.map_or(Ok(()), |w| w.finish().map(drop))) {
        // the reader has gone
        Err(e) if !is_broken_pipe(&e) => Err(e.into()),
        _ => Ok(()),
    }
}

fn opened(path: &Path) -> Result<Capture> {
    let options = OpenOptions::new().follow(Follow::Wait(Box::new(|| false)));
    open(path, options).with_context(|| format!("{} cannot be followed", path.display()))
}

/// The parts of the name of a file of a series: the text before number and time, the number, and the extension.
fn parts(path: &Path) -> Option<(&str, u32, &str)> {
    let name = path.file_name()?.to_str()?;
    let (stem, extension) = name.rsplit_once('.').map_or((name, ""), |(stem, _)| (stem, &name[stem.len()..]));
    let (rest, time) = stem.rsplit_once('_')?;
    let (stem, number) = rest.rsplit_once('_')?;
    let is_time = time.len() == 14 && time.bytes().all(|b| b.is_ascii_digit());
    let is_number = number.len() >= 5 && number.bytes().all(|b| b.is_ascii_digit());
    (is_time && is_number).then_some((stem, number.parse().ok()?, extension))
}

fn number_of(path: &Path) -> Option<u32> {
    parts(path).map(|(_, number, _)| number)
}

/// The files of the series that `path` is one of, or is the name of: those with `least` and more, by their numbers.
fn of_series(path: &Path, least: u32) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let whole = name.rsplit_once('.').map_or((name, ""), |(stem, _)| (stem, &name[stem.len()..]));
    let (stem, extension) = parts(path).map_or(whole, |(stem, _, extension)| (stem, extension));
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let (of, number, with) = parts(&path)?;
            (of == stem && with == extension && number >= least).then_some(number).map(|n| (n, path.clone()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmascope_capture::{Interface, LinkType, Record, Section};
    use std::fs;
    use std::time::Instant;

    fn file(path: &Path, times: std::ops::Range<i64>) {
        let mut writer = PcapngWriter::create(path, &Section::default()).unwrap();
        writer
            .add_interface(&Interface { name: Some("eth0".to_owned()), ..Interface::new(LinkType::ETHERNET) })
            .unwrap();
        for time in times {
            writer.write(&Record::new(time, 0, LinkType::ETHERNET, 60, &[1; 60])).unwrap();
        }
        writer.finish().unwrap();
    }

    fn times(path: &Path) -> Vec<i64> {
        let Ok(mut source) = open(path, OpenOptions::new()) else { return Vec::new() };
        std::iter::from_fn(|| source.next().ok().flatten().map(|r| r.time_ns)).collect()
    }

    #[test]
    fn captures_that_run_are_found() {
        let proc = tempfile::tempdir().unwrap();
        let cases: [(&str, &str); 6] = [
            ("12", "/usr/bin/rdmascope\0capture\0-i\0eth0\0-w\0/tmp/a.pcapng\0"),
            ("9", "rdmascope\0--color=never\0capture\0-ieth1\0-i\0eth2\0--write=/tmp/b.pcapng\0-b\0filesize:1\0"),
            ("13", "rdmascope\0capture\0-i\0eth0\0-w\0-\0"),
            ("14", "sudo\0rdmascope\0capture\0-i\0eth0\0-w\0/tmp/c.pcapng\0"),
            ("15", "rdmascope\0analyze\0x.pcapng\0"),
            ("self", "rdmascope\0capture\0-i\0eth0\0-w\0/tmp/d.pcapng\0"),
        ];
        for (name, line) in cases {
            fs::create_dir(proc.path().join(name)).unwrap();
            fs::write(proc.path().join(name).join("cmdline"), line).unwrap();
        }
        let found = running(proc.path());
        let paths: Vec<_> =
            found.iter().map(|r| (r.process, r.path.to_str().unwrap(), r.interfaces.join(","))).collect();
        assert_eq!(paths, [(9, "/tmp/b.pcapng", "eth1,eth2".to_owned()), (12, "/tmp/a.pcapng", "eth0".to_owned())]);
        assert!(running(Path::new("/nonexistent")).is_empty());
    }

    /// Time limit for anything that must happen, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(120);

    #[test]
    fn a_series_is_followed_from_file_to_file_until_its_process_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        file(&path("r_00002_20261121000000.pcapng"), 1..4);
        file(&path("other_00003_20261121000000.pcapng"), 100..101);
        let mut process = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let how = How { process: Some(process.id()), ..How::default() };
        let (out, base, signals) = (path("out.pcapng"), path("r.pcapng"), Signals::default());
        let to = File::create(&out).unwrap();
        let attached = {
            let (out, signals) = (out.clone(), signals.clone());
            std::thread::spawn(move || attach(&base, to, &out, &how, &signals))
        };
        let comes = |expected: &[i64]| {
            let begun = Instant::now();
            while times(&out) != expected && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(times(&out), expected);
        };
        comes(&[1, 2, 3]);
        file(&path("r_00003_20261121000100.pcapng"), 4..6);
        file(&path("r_00004_20261121000200.pcapng"), 6..8);
        comes(&[1, 2, 3, 4, 5, 6, 7]);
        process.kill().unwrap();
        process.wait().unwrap();
        attached.join().unwrap().unwrap();
    }

    #[test]
    fn what_was_there_before_is_left_out_where_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        file(&path("r_00001_20261121000000.pcapng"), 1..4);
        let (out, signals) = (path("out.pcapng"), Signals::default());
        let to = File::create(&out).unwrap();
        let attached = {
            let (out, first, signals) = (out.clone(), path("r_00001_20261121000000.pcapng"), signals.clone());
            std::thread::spawn(move || attach(&first, to, &out, &How { from_now: true, ..How::default() }, &signals))
        };
        let begun = Instant::now();
        while fs::metadata(&out).map_or(0, |m| m.len()) == 0 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        file(&path("r_00002_20261121000100.pcapng"), 4..6);
        while times(&out).len() < 2 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        signals.stop.store(true, Ordering::Relaxed);
        attached.join().unwrap().unwrap();
        assert_eq!(times(&out), [4, 5]);
    }

    #[test]
    fn names_of_a_series_are_recognized() {
        assert_eq!(parts(Path::new("/tmp/a_b_00012_20261121000000.pcapng")), Some(("a_b", 12, ".pcapng")));
        assert_eq!(parts(Path::new("x_00001_20261121000000")), Some(("x", 1, "")));
        for name in ["a.pcapng", "a_1_20261121000000.pcapng", "a_00001_2026.pcapng", "00001_20261121000000.pcapng"] {
            assert_eq!(parts(Path::new(name)), None, "{name}");
        }
    }
}
