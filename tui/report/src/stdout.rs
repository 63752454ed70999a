//! Standard output: buffered, coloured where that is wanted, and with an error that says what was being written to.

use anyhow::{Context, Result};
use std::io::{self, IsTerminal, StdoutLock, Write};

/// Bytes that are collected before they are written.
const CHUNK: usize = 64 * 1024;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Wherever it goes.
    Always,
    /// Nowhere.
    Never,
}

/// What is written goes into a buffer first; [`Out::spill`] passes it on when it is large, [`Out::finish`] at the end.
pub struct Out {
    /// To be appended to.
    pub buffer: Vec<u8>,
    /// Whether to colour.
    pub color: bool,
    /// Whether a person reads along, who wants to see lines when they are there.
    pub is_terminal: bool,
    stdout: StdoutLock<'static>,
}

impl Out {
    /// Takes standard output.
    pub fn new(color: Color) -> Self {
        let stdout = io::stdout().lock();
        let is_terminal = stdout.is_terminal();
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            // https://no-color.org: set and not empty
            Color::Auto => {
                is_terminal
                    && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                    && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        };
        Self { buffer: Vec::with_capacity(CHUNK * 2), color, is_terminal, stdout }
    }

    /// Columns of the terminal; no limit where there is none.
    pub fn width(&self) -> usize {
        columns().unwrap_or(usize::MAX)
    }

    /// Writes what was collected, if it is much.
    #[inline]
    pub fn spill(&mut self) -> Result<()> {
        if self.buffer.len() >= CHUNK { self.write() } else { Ok(()) }
    }

    /// Writes what was collected now.
    pub fn write(&mut self) -> Result<()> {
        let written = self.stdout.write_all(&self.buffer);
        self.buffer.clear();
        written.context("standard output cannot be written")
    }

    /// Writes `text` behind what was collected, without collecting it.
    pub fn pass(&mut self, text: &[u8]) -> Result<()> {
        if text.len() < CHUNK {
            self.buffer.extend_from_slice(text);
            return self.spill();
        }
        self.write()?;
        self.stdout.write_all(text).context("standard output cannot be written")
    }

    /// Writes everything; nothing may fail unseen after this.
    pub fn finish(&mut self) -> Result<()> {
        self.write()?;
        self.stdout.flush().context("standard output cannot be written")
    }
}

/// Columns of the terminal that standard output is, if it is one.
pub fn columns() -> Option<usize> {
    // asked of standard output itself: another stream may be another terminal
    let (width, _) = io::stdout().is_terminal().then(|| terminal_size::terminal_size_of(io::stdout())).flatten()?;
    Some(usize::from(width.0))
}
