//! Writing of capture files: [`PcapngWriter`] and [`PcapWriter`]; and outputs that appear whole or not at all:
//! [`WholeFile`].
//!
//! Both write through a buffer. Errors of the last bytes show only in `finish`, so call it; a writer that is dropped
//! swallows them.

mod fresh;
mod pcap;
mod pcapng;
mod whole;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use fresh::fresh;
pub use pcap::PcapWriter;
pub use pcapng::PcapngWriter;
pub use whole::{Access, Existing, WholeFile, stands_at};

use crate::error::{Error, Problem, Result};

/// Destination of a writer made by `create`: a file or standard output.
pub type Output = Box<dyn Write + Send>;

const BUFFER: usize = 256 << 10;

/// A buffered output that counts its bytes and knows its path.
struct Out<W: Write> {
    inner: BufWriter<W>,
    path: PathBuf,
    written: u64,
}

impl<W: Write> Out<W> {
    fn new(inner: W, path: PathBuf) -> Out<W> {
        Out { inner: BufWriter::with_capacity(BUFFER, inner), path, written: 0 }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self.inner.write_all(bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            Err(e) => Err(self.error(e)),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush().map_err(|e| self.error(e))
    }

    fn finish(mut self) -> Result<W> {
        self.flush()?;
        let (path, offset) = (self.path, self.written);
        self.inner.into_inner().map_err(|e| Error::new(path, Problem::Write { offset, source: e.into_error() }))
    }

    #[cold]
    fn error(&self, source: io::Error) -> Error {
        Error::new(&self.path, Problem::Write { offset: self.written, source })
    }

    #[cold]
    fn does_not_fit(&self, why: String) -> Error {
        Error::new(&self.path, Problem::DoesNotFit(why))
    }
}

/// Creates the file at `path`, or truncates an existing one; `-` is standard output.
fn create(path: &Path) -> Result<Output> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    Ok(Box::new(File::create(path).map_err(|e| Error::new(path, Problem::Create(e)))?))
}
