//! What the built-in peer shares: a folder, or files in memory. No path leads out of the folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

/// Bytes of all files in memory at most.
const MEMORY_MAX: usize = 1 << 30;
/// Files in memory at most.
const FILES_MAX: usize = 65_536;

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub length: u64,
    /// Whether it is a folder.
    pub folder: bool,
    /// Last written, ns since 1970.
    pub modified: u64,
    /// A number of its own.
    pub id: u64,
}

/// Files by path; `/` stands between the names, and the share itself is the empty path.
#[derive(Debug)]
pub enum Storage {
    /// Of a file system.
    Folder(PathBuf),
    /// Of one folder, in memory.
    Memory(Mutex<BTreeMap<String, Vec<u8>>>),
}

impl Storage {
    /// A folder that exists.
    ///
    /// # Errors
    /// Where it does not, or is none.
    pub fn folder(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        if path.is_dir() { Ok(Self::Folder(path)) } else { Err(io::Error::new(io::ErrorKind::NotADirectory, "not a folder")) }
    }

    /// Files in memory.
    pub fn memory(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self::Memory(Mutex::new(files.into_iter().collect()))
    }

    fn files(files: &Mutex<BTreeMap<String, Vec<u8>>>) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a path lies in the file system: below the root, whatever links are on the way.
    fn place(root: &Path, path: &str) -> io::Result<PathBuf> {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let mut place = root.to_path_buf();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if name == "." || name == ".." || name.contains(['\0', '\\', ':']) {
                return Err(refused());
            }
            place.push(name);
        }
        let there = match place.canonicalize() {
            Ok(there) => there,
            Err(e) if e.kind() == io::ErrorKind::NotFound => place.parent().ok_or_else(refused)?.canonicalize()?,
            Err(e) => return Err(e),
        };
        if !there.starts_with(root) || place.is_symlink() && !place.exists() {
            return Err(refused());
        }
        Ok(place)
    }

    /// A file in memory that may become so long, as far as all files together have room.
    fn with_room<'a>(files: &'a mut BTreeMap<String, Vec<u8>>, path: &str, length: usize) -> io::Result<&'a mut Vec<u8>> {
        let total: usize = files.values().map(Vec::len).sum();
        let file = files.get_mut(path).ok_or(io::ErrorKind::NotFound)?;
        if length > file.len() && length - file.len() > MEMORY_MAX.saturating_sub(total) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(file)
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// Where it is not there, or not to be had.
    pub fn stat(&self, path: &str) -> io::Result<Stat> {
        match self {
            Self::Folder(root) => {
                let meta = fs::metadata(Self::place(root, path)?)?;
                let modified = meta.modified().ok().and_then(|m| m.duration_since(UNIX_EPOCH).ok()).map_or(0, |d| d.as_nanos() as u64);
                #[cfg(unix)]
                let id = std::os::unix::fs::MetadataExt::ino(&meta);
                #[cfg(not(unix))]
                let id = number_of(path);
                Ok(Stat { length: if meta.is_dir() { 0 } else { meta.len() }, folder: meta.is_dir(), modified, id })
            }
            Self::Memory(_) if path.is_empty() => Ok(Stat { length: 0, folder: true, modified: 0, id: 1 }),
            Self::Memory(files) => {
                let files = Self::files(files);
                let file = files.get(path).ok_or(io::ErrorKind::NotFound)?;
                Ok(Stat { length: file.len() as u64, folder: false, modified: 0, id: number_of(path) })
            }
        }
    }

    /// Bytes of a file; fewer at its end.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read(&self, path: &str, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        match self {
            Self::Folder(root) => {
                let mut file = fs::File::open(Self::place(root, path)?)?;
                file.seek(SeekFrom::Start(offset))?;
                let mut data = Vec::new();
                file.take(length.into()).read_to_end(&mut data)?;
                Ok(data)
            }
            Self::Memory(files) => {
                let files = Self::files(files);
                let file = files.get(path).ok_or(io::ErrorKind::NotFound)?;
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
                Ok(file[start..start.saturating_add(length as usize).min(file.len())].to_vec())
            }
        }
    }

    /// Changes bytes of a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, path: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::Folder(root) => {
                let mut file = fs::OpenOptions::new().write(true).open(Self::place(root, path)?)?;
                file.seek(SeekFrom::Start(offset))?;
                file.write_all(data)
            }
            Self::Memory(files) => {
                let mut files = Self::files(files);
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(data.len());
                let file = Self::with_room(&mut files, path, end)?;
                if end > file.len() {
                    file.resize(end, 0);
                }
                file[start..end].copy_from_slice(data);
                Ok(())
            }
        }
    }

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set_length(&self, path: &str, length: u64) -> io::Result<()> {
        match self {
            Self::Folder(root) => fs::OpenOptions::new().write(true).open(Self::place(root, path)?)?.set_len(length),
            Self::Memory(files) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Self::with_room(&mut Self::files(files), path, length)?.resize(length, 0);
                Ok(())
            }
        }
    }

    /// Makes an empty file, or a folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(&self, path: &str, folder: bool) -> io::Result<()> {
        match self {
            Self::Folder(root) if folder => fs::create_dir(Self::place(root, path)?),
            Self::Folder(root) => fs::OpenOptions::new().write(true).create_new(true).open(Self::place(root, path)?).map(drop),
            Self::Memory(_) if folder || path.contains('/') => Err(io::ErrorKind::Unsupported.into()),
            Self::Memory(files) => {
                let mut files = Self::files(files);
                if files.contains_key(path) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                if files.len() >= FILES_MAX {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                files.insert(path.to_owned(), Vec::new());
                Ok(())
            }
        }
    }

    /// Removes a file, or an empty folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        match self {
            Self::Folder(root) => {
                let place = Self::place(root, path)?;
                if place.is_dir() { fs::remove_dir(place) } else { fs::remove_file(place) }
            }
            Self::Memory(files) => Self::files(files).remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }

    /// Gives a file or folder another name. `replace` says whether a file of that name may go.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn rename(&self, from: &str, to: &str, replace: bool) -> io::Result<()> {
        match self {
            Self::Folder(root) => {
                let (from, to) = (Self::place(root, from)?, Self::place(root, to)?);
                if !replace && to.symlink_metadata().is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(from, to)
            }
            Self::Memory(_) if to.is_empty() || to.contains('/') => Err(io::ErrorKind::Unsupported.into()),
            Self::Memory(files) => {
                let mut files = Self::files(files);
                if !replace && from != to && files.contains_key(to) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let data = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
                files.insert(to.to_owned(), data);
                Ok(())
            }
        }
    }

    /// Names in a folder, sorted.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn list(&self, path: &str) -> io::Result<Vec<String>> {
        match self {
            Self::Folder(root) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(Self::place(root, path)?)? {
                    if let Ok(name) = entry?.file_name().into_string() {
                        names.push(name);
                    }
                }
                names.sort();
                Ok(names)
            }
            Self::Memory(files) => Ok(Self::files(files).keys().cloned().collect()),
        }
    }
}

/// The file id of a path that no file system numbers: the same for as long as the process runs, and never that of the root.
fn number_of(path: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish() | 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("share");
        fs::create_dir(&root).unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        fs::write(root.join("a"), "hello").unwrap();
        let storage = Storage::folder(&root).unwrap();
        assert_eq!(storage.read("a", 1, 3).unwrap(), b"ell");
        for path in ["../secret", "a/../../secret", "..", "./a"] {
            assert!(storage.read(path, 0, 1).is_err() && storage.stat(path).is_err(), "{path}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(outside.path(), root.join("link")).unwrap();
            std::os::unix::fs::symlink(outside.path().join("new"), root.join("dangling")).unwrap();
            assert!(storage.read("link/secret", 0, 1).is_err());
            assert!(storage.create("link/new", false).is_err());
            assert!(storage.create("dangling", false).is_err());
        }
        assert!(!outside.path().join("new").exists());
    }

    #[test]
    fn memory_has_an_end_for_all_files_together() {
        let storage = Storage::memory([("a".to_owned(), vec![1; 10]), ("b".to_owned(), Vec::new())]);
        let full = |done: io::Result<()>| assert_eq!(done.unwrap_err().kind(), io::ErrorKind::StorageFull);
        full(storage.set_length("b", MEMORY_MAX as u64));
        full(storage.write("b", MEMORY_MAX as u64 - 10, b"x"));
        full(storage.write("b", u64::MAX, b"x"));
        storage.set_length("b", 100).unwrap();
        storage.set_length("a", 5).unwrap();
        assert_eq!((storage.stat("a").unwrap().length, storage.stat("b").unwrap().length), (5, 100));
    }

    #[test]
    fn both_kinds_do_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for storage in [Storage::folder(folder.path()).unwrap(), Storage::memory([])] {
            storage.create("x", false).unwrap();
            assert_eq!(storage.create("x", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            storage.write("x", 3, b"abc").unwrap();
            assert_eq!(storage.read("x", 0, 100).unwrap(), b"\0\0\0abc");
            storage.set_length("x", 4).unwrap();
            assert_eq!((storage.stat("x").unwrap().length, storage.list("").unwrap()), (4, vec!["x".to_owned()]));
            storage.create("y", false).unwrap();
            assert_eq!(storage.rename("x", "y", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            storage.rename("x", "y", true).unwrap();
            assert_eq!((storage.stat("y").unwrap().length, storage.list("").unwrap()), (4, vec!["y".to_owned()]));
            assert!(storage.rename("y", "../out", true).is_err() && storage.rename("x", "z", true).is_err());
            storage.remove("y").unwrap();
            assert!(storage.stat("y").is_err() && storage.read("y", 0, 1).is_err());
        }
    }
}
