//! The contents that READ and WRITE moved, written as files of their names. A name comes from the network: it never leaves
//! the folder, and never overwrites what was there before.

use rdmascope_analyzer::exchange::Exchange;
use rdmascope_analyzer::report::Sink;
use rdmascope_dissector::text::is_unsafe;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Files written at most; open at the same time is one.
const FILES_MAX: usize = 65_536;
/// Bytes of one component of a path at most.
const COMPONENT_MAX: usize = 200;
/// Components of a path at most.
const DEPTH_MAX: usize = 32;
/// Offsets from here on are not believed: a sparse file of that length helps nobody.
const OFFSET_MAX: u64 = 1 << 42;

/// Why payloads cannot be written.
#[derive(Debug, Error)]
pub enum Error {
    /// The folder has something in it.
    #[error("{0} is not empty: payloads are written into a folder of their own")]
    NotEmpty(PathBuf),
    /// Something in or about the folder.
    #[error("{path} cannot be written: {error}")]
    Write {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes that READs brought.
    pub read: u64,
    /// Bytes that WRITEs took.
    pub written: u64,
    /// What is there: ranges from–to, apart and ascending. Between them are holes, which read as zeros.
    pub ranges: Vec<(u64, u64)>,
}

impl Written {
    /// Bytes before the last one that no READ or WRITE moved.
    pub fn holes(&self) -> u64 {
        let end = self.ranges.last().map_or(0, |r| r.1);
        end - self.ranges.iter().map(|(from, to)| to - from).sum::<u64>()
    }

    fn add(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        self.ranges.retain(|(f, t)| {
            let apart = *t < from || to < *f;
            if !apart {
                from = from.min(*f);
                to = to.max(*t);
            }
            apart
        });
        let place = self.ranges.partition_point(|(f, _)| *f < from);
        self.ranges.insert(place, (from, to));
    }
}

/// Takes payloads as an analysis goes, and writes them.
#[derive(Debug)]
pub struct Payloads {
    folder: PathBuf,
    files: BTreeMap<PathBuf, Written>,
    open: Option<(PathBuf, File)>,
    /// Pieces that were not written: too many files, or an offset beyond belief.
    pub skipped: u64,
    error: Option<Error>,
}

impl Payloads {
    /// Will write into `folder`, which is made where it is missing and has to be empty.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn new(folder: &Path) -> Result<Self, Error> {
        let failed = |error| Error::Write { path: folder.to_owned(), error };
        fs::create_dir_all(folder).map_err(failed)?;
        if fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(Error::NotEmpty(folder.to_owned()));
        }
        Ok(Self { folder: folder.to_owned(), files: BTreeMap::new(), open: None, skipped: 0, error: None })
    }

    /// What was written, by path in the folder.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(self) -> Result<BTreeMap<PathBuf, Written>, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.files),
        }
    }

    fn put(&mut self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            let whole = self.folder.join(path);
            if let Some(parent) = whole.parent() {
                fs::create_dir_all(parent)?;
            }
            // a file of ours is opened again; anything else that is there is not touched
            let known = self.files.contains_key(path);
            let file = OpenOptions::new().write(true).create_new(!known).open(&whole)?;
            self.open = Some((path.to_owned(), file));
        }
        if let Some((_, file)) = &mut self.open {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(bytes)?;
        }
        Ok(())
    }
}

impl Sink for Payloads {
    fn payload(&mut self, exchange: &Exchange, offset: u64, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let path = match exchange.file.as_deref().map(safe_path) {
            Some(path) if !path.as_os_str().is_empty() => path,
            _ => PathBuf::from(format!("unnamed-connection-{}", exchange.connection)),
        };
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= OFFSET_MAX);
        let Some(end) = end.filter(|_| self.files.len() < FILES_MAX || self.files.contains_key(&path)) else {
            self.skipped += 1;
            return;
        };
        if let Err(error) = self.put(&path, offset, bytes) {
            self.error = Some(Error::Write { path: self.folder.join(&path), error });
            return;
        }
        let file = self.files.entry(path).or_default();
        file.add(offset, end);
        if exchange.command == "WRITE" { file.written += bytes.len() as u64 } else { file.read += bytes.len() as u64 }
    }
}

/// A path from the network as a path below a folder: no root, no `..`, nothing that a file system or a terminal would take for
/// something else.
pub fn safe_path(name: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in name.split(['/', '\\']).filter(|c| !c.is_empty() && *c != ".").take(DEPTH_MAX) {
        let mut safe: String = component
            .chars()
            .map(|c| {
                let is_strange = is_unsafe(c) || "<>:\"|?*".contains(c);
                if is_strange { '_' } else { c }
            })
            .collect();
        while safe.len() > COMPONENT_MAX {
            safe.pop();
        }
        if safe.chars().all(|c| c == '.') {
            safe = "_".repeat(safe.chars().count());
        }
        path.push(safe);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Component;

    #[test]
    fn names_stay_in_the_folder() {
        for name in [
            "../../etc/passwd",
            "/etc/passwd",
            "\\\\server\\share\\..\\x",
            "a/../../b",
            "C:\\x",
            "..",
            "....",
            "a\u{1b}[2J\u{202e}b",
            "\u{61c}\u{ad}\u{180e}\u{e0041}",
            "",
            "/",
            "con\0x",
            &"x".repeat(1000),
        ] {
            let path = safe_path(name);
            assert!(path.components().all(|c| matches!(c, Component::Normal(_))), "{name:?} becomes {path:?}");
            assert!(path.to_str().unwrap().chars().all(|c| !is_unsafe(c)));
            assert!(path.components().all(|c| c.as_os_str().len() <= COMPONENT_MAX));
        }
        assert_eq!(safe_path("dir\\file.txt"), Path::new("dir/file.txt"));
        assert_eq!(safe_path("../x"), Path::new("__/x"));
    }

    #[test]
    fn holes_are_counted() {
        let mut file = Written::default();
        file.add(0, 10);
        file.add(30, 40);
        assert_eq!(file.holes(), 20);
        file.add(10, 30);
        assert_eq!((file.holes(), file.ranges), (0, vec![(0, 40)]));
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), "x").unwrap();
        assert!(matches!(Payloads::new(folder.path()), Err(Error::NotEmpty(_))));
        assert!(Payloads::new(&folder.path().join("new")).is_ok());
    }
}
