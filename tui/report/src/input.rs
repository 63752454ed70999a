//! The captures of a command line: opened, merged, and walked with a progress bar.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::{Capture, MergedSource, OpenOptions, Problem, Source, open};
use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// One capture, or several merged by time.
pub enum Input {
    /// A single capture.
    One(Capture),
    /// Several.
    Many(MergedSource),
}

/// Refuses standard input that is named twice: what one reads, the other misses.
fn only_once(files: &[PathBuf]) -> Result<()> {
    if files.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        bail!("- is given twice, but standard input can be read only once");
    }
    Ok(())
}

/// Opens all of the files.
pub fn open_all(files: &[PathBuf]) -> Result<Input> {
    only_once(files)?;
    let captures = files.iter().map(|path| open(path, OpenOptions::new())).collect::<Result<Vec<_>, _>>()?;
    Ok(together(captures))
}

/// The captures that can be read, and why others are damaged from the start: by place in `files`.
#[derive(Default)]
pub struct Opened {
    /// The input; `None` if there is nothing to read.
    pub input: Option<Input>,
    /// Places of the captures that it has.
    pub read: Vec<usize>,
    /// Those that it has not.
    pub damaged: Vec<(usize, rdmascope_capture::Error)>,
}

/// Opens the files. Captures that are damaged before their first frame are reported in addition to the others; pipes
/// end when `stop` is set.
///
/// # Errors
/// One is no capture, or cannot be opened.
pub fn open_each(files: &[PathBuf], stop: Option<&Arc<AtomicBool>>) -> Result<Opened> {
    only_once(files)?;
    let (mut captures, mut opened) = (Vec::new(), Opened::default());
    for (place, path) in files.iter().enumerate() {
        let options = stop.map_or_else(OpenOptions::new, |stop| OpenOptions::new().stop(stop.clone()));
        match open(path, options) {
            Ok(capture) => {
                captures.push(capture);
                opened.read.push(place);
            }
            Err(e) if matches!(e.problem(), Problem::Damaged { .. }) => opened.damaged.push((place, e)),
            Err(e) => return Err(e.into()),
        }
    }
    opened.input = (!captures.is_empty()).then(|| together(captures));
    Ok(opened)
}

/// True if one of the files is standard input or another pipe, which may never end.
pub fn has_pipe(files: &[PathBuf]) -> bool {
    files
        .iter()
        .any(|path| path == Path::new("-") || path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir()))
}

fn together(mut captures: Vec<Capture>) -> Input {
    match captures.len() {
        1 => Input::One(captures.remove(0)),
        _ => Input::Many(MergedSource::new(captures)),
    }
}

/// The keys and passwords in a file, or the keys of servers in a keytab; none without a file.
pub fn keyring(path: Option<&Path>) -> Result<Keyring> {
    let mut keyring = Keyring::new();
    let Some(path) = path else { return Ok(keyring) };
    let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    if bytes.starts_with(&KEYTAB) {
        open_tickets(&mut keyring, path)?;
        return Ok(keyring);
    }
    let not_a_file = || format!("{} is not a key file", path.display());
    let text = String::from_utf8(bytes).with_context(not_a_file)?;
    keyring.add_file(&text).with_context(not_a_file)?;
    Ok(keyring)
}

pub use crate::system::open_to_others;

/// First bytes of a keytab of MIT Kerberos.
const KEYTAB: [u8; 2] = [5, 2];

#[cfg(feature = "kerberos")]
fn open_tickets(keyring: &mut Keyring, path: &Path) -> Result<()> {
    keyring.set_tickets(std::sync::Arc::new(rdmascope_replay::kerberos::keytab::Keytab::read(path)?));
    Ok(())
}

#[cfg(not(feature = "kerberos"))]
fn open_tickets(_: &mut Keyring, path: &Path) -> Result<()> {
    anyhow::bail!("{} is a keytab: only a build with --features kerberos accepts it", path.display())
}

/// Work that is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_millis(700);
/// Frames between two looks at how far reading is.
const STEP: u64 = 2048;

/// A progress bar on standard error. It is shown only if a person sees it and the output does not go to the same
/// terminal.
pub struct Bar {
    bar: Option<ProgressBar>,
    /// Since the last look.
    frames: u64,
    begun: Instant,
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Bar {
    /// A bar for work with output in between: it is hidden if the output goes to the terminal too.
    pub fn new() -> Self {
        Self::shown(stderr().is_terminal() && !stdout().is_terminal())
    }

    /// A bar for output that comes when the work is done.
    pub fn before_output() -> Self {
        Self::shown(stderr().is_terminal())
    }

    fn shown(shown: bool) -> Self {
        let bar = shown.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, frames: 0, begun: Instant::now() }
    }

    /// Called for each frame; looks only now and then.
    #[inline]
    pub fn frame(&mut self, source: &impl Source) {
        self.frames(1, source);
    }

    /// The same for so many frames.
    #[inline]
    pub fn frames(&mut self, count: u64, source: &impl Source) {
        self.frames += count;
        if self.frames >= STEP {
            self.frames = 0;
            self.show(source);
        }
    }

    /// Sets the progress: bytes done, and the total.
    pub fn at(&self, done: u64, total: u64) {
        if let Some(bar) = self.due() {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// The bar, once the work has taken a while: a bar that appears only for a moment would flash.
    fn due(&self) -> Option<&ProgressBar> {
        let bar = self.bar.as_ref()?;
        if bar.is_hidden() {
            if self.begun.elapsed() < PATIENCE {
                return None;
            }
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        Some(bar)
    }

    #[cold]
    fn show(&self, source: &impl Source) {
        let Some(bar) = self.due() else { return };
        let progress = source.progress();
        if let Some(total) = progress.total {
            bar.set_length(total);
        }
        bar.set_position(progress.done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_only_once_work_takes_a_while() {
        let mut bar = Bar::shown(true);
        assert!(bar.due().is_none(), "work has just begun");
        bar.begun = Instant::now().checked_sub(2 * PATIENCE).expect("the clock began before");
        assert!(bar.due().is_some());
        assert!(Bar::shown(false).due().is_none());
    }
}
