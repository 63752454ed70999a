//! The captures of a command line: opened, merged, and walked with a progress bar.

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rdmascope_analyzer::keys::Keyring;
use rdmascope_capture::{Capture, MergedSource, OpenOptions, Source, open};
use std::io::{IsTerminal, stderr, stdout};
use std::path::{Path, PathBuf};

/// One capture, or several merged by time.
pub enum Input {
    /// One capture.
    One(Capture),
    /// Several.
    Many(MergedSource),
}

/// Opens all of the files.
pub fn open_all(files: &[PathBuf]) -> Result<Input> {
    let mut captures = files.iter().map(|path| open(path, OpenOptions::new())).collect::<Result<Vec<_>, _>>()?;
    Ok(match captures.len() {
        1 => Input::One(captures.remove(0)),
        _ => Input::Many(MergedSource::new(captures)),
    })
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

/// What a keytab of MIT Kerberos begins with.
const KEYTAB: [u8; 2] = [5, 2];

#[cfg(feature = "kerberos")]
fn open_tickets(keyring: &mut Keyring, path: &Path) -> Result<()> {
    keyring.set_tickets(std::sync::Arc::new(rdmascope_replay::smb2::kerberos::keytab::Keytab::read(path)?));
    Ok(())
}

#[cfg(not(feature = "kerberos"))]
fn open_tickets(_: &mut Keyring, path: &Path) -> Result<()> {
    anyhow::bail!("{} is a keytab: only a build with --features kerberos takes one", path.display())
}

/// Bytes between two looks at how far reading is.
const STEP: u32 = 2048;

/// A bar on stderr while long work goes on: only where a person sees it and the output does not go to the same terminal.
pub struct Bar {
    bar: Option<ProgressBar>,
    frames: u32,
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Bar {
    /// For output that comes while work goes on: not where it goes to the terminal too.
    pub fn new() -> Self {
        Self::shown(stderr().is_terminal() && !stdout().is_terminal())
    }

    /// For output that comes when work is done.
    pub fn before_output() -> Self {
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
    pub fn frame(&mut self, source: &impl Source) {
        self.frames += 1;
        if self.frames.is_multiple_of(STEP) && self.bar.is_some() {
            self.show(source);
        }
    }

    /// Bytes done, of so many.
    pub fn at(&self, done: u64, total: u64) {
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
