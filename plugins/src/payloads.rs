//! The contents that READ and WRITE moved, written as files with their names. A name comes from the network: it never
//! leaves the folder, and never overwrites an existing file unless requested. Two names never share a file: if they
//! would, because a character was replaced or because one is a folder of the other, the second one gets a number.

use rdmascope_analyzer::exchange::{Exchange, Family};
use rdmascope_analyzer::report::Sink;
use rdmascope_dissector::text::is_unsafe;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum number of files written; only one is open at a time.
const FILES_MAX: usize = 65_536;
/// Maximum length of one component of a path, in bytes.
const COMPONENT_MAX: usize = 200;
/// Maximum number of components of a path.
const DEPTH_MAX: usize = 32;
/// Number of suffixes tried if a name is taken.
const NUMBERS_MAX: u32 = 1000;
/// Offsets from here on are rejected: a sparse file of that length is of no use.
const OFFSET_MAX: u64 = 1 << 42;

/// An error that prevents payloads from being written.
#[derive(Debug, Error)]
pub enum Error {
    /// The folder has something in it.
    #[error("{0} is not empty: payloads need an empty folder")]
    NotEmpty(PathBuf),
    /// Something in or about the folder.
    #[error("{path} cannot be written: {error}")]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

/// A file that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes that READs brought.
    pub read: u64,
    /// Bytes that WRITEs took.
    pub written: u64,
    /// The ranges that were written, as first offset and end, disjoint and ascending. Between them are holes, which
    /// read as zeros.
    ranges: BTreeMap<u64, u64>,
}

impl Written {
    /// Bytes before the last one that no READ or WRITE moved.
    pub fn holes(&self) -> u64 {
        let end = self.ranges.last_key_value().map_or(0, |(_, to)| *to);
        end - self.ranges.iter().map(|(from, to)| to - from).sum::<u64>()
    }

    fn add(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        // those that touch it become one with it
        while let Some((&before, &end)) = self.ranges.range(..=to).next_back().filter(|(_, end)| **end >= from) {
            self.ranges.remove(&before);
            (from, to) = (from.min(before), to.max(end));
        }
        self.ranges.insert(from, to);
    }
}

/// Receives payloads during an analysis and writes them to files.
#[derive(Debug)]
pub struct Payloads {
    folder: PathBuf,
    /// True if an existing file may be replaced.
    replace: bool,
    /// Contents of this family alone.
    family: Option<Family>,
    files: BTreeMap<PathBuf, Written>,
    /// The file of each name, by a keyed hash of the name, which an attacker cannot predict.
    names: HashMap<u64, PathBuf>,
    hasher: RandomState,
    open: Option<(PathBuf, File)>,
    /// Number of pieces that were not written: too many files, or an implausible offset.
    pub skipped: u64,
    error: Option<Error>,
}

impl Payloads {
    /// Prepares to write into `folder`, which is made if missing and must be empty.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn new(folder: &Path) -> Result<Self, Error> {
        Self::with(folder, false, None)
    }

    /// The same, of one family only. With `replace` the folder may contain files: those with the same name are
    /// replaced, and no link is followed.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn with(folder: &Path, replace: bool, family: Option<Family>) -> Result<Self, Error> {
        let failed = |error| Error::Write { path: folder.to_owned(), error };
        fs::create_dir_all(folder).map_err(failed)?;
        if !replace && fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(Error::NotEmpty(folder.to_owned()));
        }
        Ok(Self {
            folder: folder.to_owned(),
            replace,
            family,
            files: BTreeMap::new(),
            names: HashMap::new(),
            hasher: RandomState::new(),
            open: None,
            skipped: 0,
            error: None,
        })
    }

    /// Returns the files that were written, by path in the folder.
    ///
    /// # Errors
    /// The first thing that could not be written.
    pub fn finish(self) -> Result<BTreeMap<PathBuf, Written>, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.files),
        }
    }

    /// The file of a name; it is made if the name is new.
    fn file_of(&mut self, name: &str) -> Result<PathBuf, Error> {
        let hash = self.hasher.hash_one(name);
        if let Some(path) = self.names.get(&hash) {
            return Ok(path.clone());
        }
        let wanted = safe_path(name);
        let mut path = wanted.clone();
        for number in 2.. {
            match self.make(&path) {
                Ok(()) => break,
                // taken by another name, or in conflict with a folder: a number is added, and in the end the folders
                // are dropped
                Err(e) if is_about_the_name(&e) && number < NUMBERS_MAX => path = numbered(&wanted, number),
                Err(e) if is_about_the_name(&e) && number == NUMBERS_MAX => {
                    path = PathBuf::from(format!("file-{}", self.files.len() + 1))
                }
                Err(error) => return Err(Error::Write { path: self.folder.join(&path), error }),
            }
        }
        self.names.insert(hash, path.clone());
        self.files.insert(path.clone(), Written::default());
        Ok(path)
    }

    /// Makes a file that is not there.
    fn make(&mut self, path: &Path) -> io::Result<()> {
        let whole = self.folder.join(path);
        if self.replace {
            self.make_way(path)?;
        }
        if let Some(parent) = whole.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&whole)?;
        self.open = Some((path.to_owned(), file));
        Ok(())
    }

    /// Removes a regular file that was there before. Anything else, such as a link, is an error.
    fn make_way(&self, path: &Path) -> io::Result<()> {
        let mut whole = self.folder.clone();
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            whole.push(component);
            let Ok(there) = fs::symlink_metadata(&whole) else { return Ok(()) };
            match components.peek() {
                Some(_) if there.is_dir() => {}
                None if there.is_file() && !self.files.contains_key(path) => fs::remove_file(&whole)?,
                _ => return Err(ErrorKind::AlreadyExists.into()),
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            let file = OpenOptions::new().write(true).open(self.folder.join(path))?;
            self.open = Some((path.to_owned(), file));
        }
        if let Some((_, file)) = &mut self.open {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(bytes)?;
        }
        Ok(())
    }
}

/// True if another name may avoid the error.
fn is_about_the_name(e: &io::Error) -> bool {
    use ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory};
    matches!(e.kind(), AlreadyExists | NotADirectory | IsADirectory | InvalidFilename | InvalidInput)
}

/// The path with a number added, as one component without folders: one of these may be a file.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut flat: String = path.iter().map(|c| c.to_string_lossy()).collect::<Vec<_>>().join("_");
    while flat.len() > COMPONENT_MAX {
        flat.pop();
    }
    PathBuf::from(format!("{flat} ({number})"))
}

impl Payloads {
    fn keep(&mut self, name: &str, is_write: bool, offset: u64, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= OFFSET_MAX);
        let is_known = || self.names.contains_key(&self.hasher.hash_one(name));
        let Some(end) = end.filter(|_| self.files.len() < FILES_MAX || is_known()) else {
            self.skipped += 1;
            return;
        };
        let written = self.file_of(name).and_then(|path| match self.put(&path, offset, bytes) {
            Ok(()) => Ok(path),
            Err(error) => Err(Error::Write { path: self.folder.join(&path), error }),
        });
        match written {
            Ok(path) => {
                let file = self.files.entry(path).or_default();
                file.add(offset, end);
                *(if is_write { &mut file.written } else { &mut file.read }) += bytes.len() as u64;
            }
            Err(error) => self.error = Some(error),
        }
    }
}

impl Sink for Payloads {
    fn payload(&mut self, exchange: &Exchange, offset: u64, bytes: &[u8]) {
        // the results of READDIR and others are not contents of a file
        if !matches!(exchange.command, "READ" | "WRITE" | "READ_PLUS")
            || self.family.is_some_and(|f| f != exchange.family)
        {
            return;
        }
        let name = exchange.file.as_deref().filter(|name| !safe_path(name).as_os_str().is_empty());
        let unnamed = || format!("unnamed-connection-{}", exchange.connection).into();
        let name: Cow<'_, str> = name.map_or_else(unnamed, Cow::Borrowed);
        self.keep(&name, exchange.command == "WRITE", offset, bytes);
    }
}

/// A path from the network as a path below a folder: no root, no `..`, nothing that a file system or a terminal would
/// take for something else.
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
        assert_eq!((file.holes(), file.ranges), (0, BTreeMap::from([(0, 40)])));
        // in any order, as often as one likes
        let mut file = Written::default();
        for piece in [50, 10, 30, 20, 10, 0, 70] {
            file.add(piece, piece + 10);
        }
        assert_eq!(file.ranges, BTreeMap::from([(0, 40), (50, 60), (70, 80)]));
    }

    #[test]
    fn different_names_are_different_files_and_none_of_them_ends_the_export() {
        let folder = tempfile::tempdir().unwrap();
        let mut payloads = Payloads::new(folder.path()).unwrap();
        let names = ["a?b", "a*b", "dir", "dir/inside", "dir/inside/deeper", "dir", "x/../y", "x/./../y", "a?b"];
        for name in names {
            payloads.keep(name, true, 0, name.as_bytes());
        }
        let written = payloads.finish().unwrap();
        let mut paths: Vec<_> = written.keys().map(|p| p.to_str().unwrap().to_owned()).collect();
        paths.sort();
        assert_eq!(paths, ["a_b", "a_b (2)", "dir", "dir_inside (2)", "dir_inside_deeper (2)", "x/__/y", "x____y (2)"]);
        for path in written.keys() {
            assert!(folder.path().join(path).is_file());
        }
        assert_eq!(fs::read(folder.path().join("a_b (2)")).unwrap(), b"a*b");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_replaced_is_a_file_and_no_link_is_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(folder.path().join("old"), "before").unwrap();
        fs::write(outside.path().join("mine"), "mine").unwrap();
        std::os::unix::fs::symlink(outside.path().join("mine"), folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("away")).unwrap();
        let mut payloads = Payloads::with(folder.path(), true, None).unwrap();
        for name in ["old", "link", "away/mine", "old"] {
            payloads.keep(name, true, 0, b"new");
        }
        let written = payloads.finish().unwrap();
        assert_eq!(
            written.keys().map(|p| p.to_str().unwrap()).collect::<Vec<_>>(),
            ["away_mine (2)", "link (2)", "old"]
        );
        assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"new");
        assert_eq!(fs::read(outside.path().join("mine")).unwrap(), b"mine");
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine"), "x").unwrap();
        assert!(matches!(Payloads::new(folder.path()), Err(Error::NotEmpty(_))));
        assert!(Payloads::new(&folder.path().join("new")).is_ok());
    }
}
