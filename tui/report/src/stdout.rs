//! Standard output: buffered, coloured on request, and with an error message that names it.

use anyhow::{Context, Result};
use std::io::{self, IoSlice, IsTerminal, StdoutLock, Write};

/// Bytes that are collected before they are written.
const CHUNK: usize = 64 * 1024;

/// When to color the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always, wherever the output goes.
    Always,
    /// Nowhere.
    Never,
}

/// Buffered standard output. [`Out::spill`] writes the buffer when it is large, [`Out::finish`] at the end.
pub struct Out {
    /// To be appended to.
    pub buffer: Vec<u8>,
    /// True if the output is colored.
    pub color: bool,
    /// True if the output is a terminal: its reader should see each line at once.
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

    /// Writes the buffer if it is large.
    #[inline]
    pub fn spill(&mut self) -> Result<()> {
        if self.buffer.len() >= CHUNK { self.write() } else { Ok(()) }
    }

    /// Writes the buffer now.
    pub fn write(&mut self) -> Result<()> {
        let written = self.stdout.write_all(&self.buffer);
        self.buffer.clear();
        written.context("standard output cannot be written")
    }

    /// Writes `text` after the buffer, without copying it if it is large.
    pub fn pass(&mut self, text: &[u8]) -> Result<()> {
        if text.len() < CHUNK {
            self.buffer.extend_from_slice(text);
            return self.spill();
        }
        self.write()?;
        self.stdout.write_all(text).context("standard output cannot be written")
    }

    /// The same of a text in pieces.
    pub fn pass_all(&mut self, mut pieces: &mut [IoSlice<'_>]) -> Result<()> {
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() < CHUNK {
            pieces.iter().for_each(|piece| self.buffer.extend_from_slice(piece));
            return self.spill();
        }
        self.write()?;
        while !pieces.is_empty() {
            match self.stdout.write_vectored(pieces) {
                Ok(0) => {
                    return Err(io::Error::from(io::ErrorKind::WriteZero)).context("standard output cannot be written");
                }
                Ok(written) => IoSlice::advance_slices(&mut pieces, written),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("standard output cannot be written"),
            }
        }
        Ok(())
    }

    /// Writes everything; nothing may fail unseen after this.
    pub fn finish(&mut self) -> Result<()> {
        self.write()?;
        self.stdout.flush().context("standard output cannot be written")
    }
}

/// Columns of the terminal; no limit if standard output is not one.
pub fn width() -> usize {
    columns().unwrap_or(usize::MAX)
}

/// Columns of the terminal; `None` if standard output is not one.
pub fn columns() -> Option<usize> {
    // this asks standard output itself: another stream may be another terminal
    let (width, _) = io::stdout().is_terminal().then(|| terminal_size::terminal_size_of(io::stdout())).flatten()?;
    Some(usize::from(width.0))
}
