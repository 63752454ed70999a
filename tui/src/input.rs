//! The captures of a command line: opened, merged, and walked with a progress bar.

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::{Capture, MergedSource, OpenOptions, Source, open};
use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};

/// One capture, or several merged by time.
pub(crate) enum Input {
    One(Capture),
    Many(MergedSource),
}

/// Opens all of the files.
pub(crate) fn open_all(files: &[PathBuf]) -> Result<Input> {
    let mut captures = files.iter().map(|path| open(path, OpenOptions::new())).collect::<Result<Vec<_>, _>>()?;
    Ok(match captures.len() {
        1 => Input::One(captures.remove(0)),
        _ => Input::Many(MergedSource::new(captures)),
    })
}

/// The keys and passwords in a file; none without one.
pub(crate) fn keyring(path: Option<&Path>) -> Result<Keyring> {
    let mut keyring = Keyring::new();
    if let Some(path) = path {
        let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        keyring.add_file(&text).with_context(|| format!("{} is not a key file", path.display()))?;
    }
    Ok(keyring)
}

/// Bytes between two looks at how far reading is.
const STEP: u32 = 2048;

/// A bar on stderr while long work goes on: only where a person sees it and the output does not go to the same terminal.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    frames: u32,
}

impl Bar {
    /// For output that comes while work goes on: not where it goes to the terminal too.
    pub(crate) fn new() -> Self {
        Self::shown(stderr().is_terminal() && !stdout().is_terminal())
    }

    /// For output that comes when work is done.
    pub(crate) fn before_output() -> Self {
        Self::shown(stderr().is_terminal())
    }

    fn shown(shown: bool) -> Self {
        let bar = shown.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, frames: 0 }
    }

    /// Called for each frame; looks only now and then.
    #[inline]
    pub(crate) fn frame(&mut self, source: &impl Source) {
        self.frames += 1;
        if self.frames.is_multiple_of(STEP) && self.bar.is_some() {
            self.show(source);
        }
    }

    /// Bytes done, of so many.
    pub(crate) fn at(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    #[cold]
    fn show(&self, source: &impl Source) {
        let Some(bar) = &self.bar else { return };
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
