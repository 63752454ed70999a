//! Storage of the built-in peer: a folder, or files in memory. Every file is opened relative to a handle of the folder
//! and stays below it, whatever is renamed or linked meanwhile. Only regular files and folders are opened.

#[cfg(unix)]
mod folder;
#[cfg(not(unix))]
#[path = "storage/no_folder.rs"]
mod folder;
// compiled everywhere, so that it stays like the other one
#[cfg(all(test, unix))]
#[allow(dead_code)]
#[allow(unreachable_pub, reason = "only the other systems use it")]
mod no_folder;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum size of all files in memory, in bytes.
const MEMORY_MAX: usize = 1 << 30;
/// Maximum number of files in memory.
const FILES_MAX: usize = 65_536;

/// Known facts about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub length: u64,
    /// True if it is a folder.
    pub folder: bool,
    /// Last read, ns since 1970.
    pub accessed: u64,
    /// Last written, ns since 1970.
    pub modified: u64,
    /// A number of its own.
    pub id: u64,
}

/// Times to set, in ns since 1970; `None` keeps the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time of the last read.
    pub accessed: Option<u64>,
    /// Time of the last write.
    pub modified: Option<u64>,
}

/// Files by path; names are separated by `/`, and the share itself is the empty path.
#[derive(Debug)]
pub enum Storage {
    /// Of a file system.
    Folder(folder::Folder),
    /// Of one folder, in memory.
    Memory(Memory),
}

/// An open file or folder. It stays usable after its name was removed.
#[derive(Debug)]
pub enum File {
    /// Of a file system.
    Disk(folder::Disk),
    /// A file in memory.
    Memory(Arc<Mutex<Content>>),
    /// The one folder in memory.
    Root,
}

/// Content of a file in memory.
#[derive(Debug, Default)]
pub struct Content {
    data: Vec<u8>,
    accessed: u64,
    modified: u64,
    id: u64,
}

/// Files in memory, by name.
#[derive(Debug, Default)]
pub struct Memory {
    files: Mutex<BTreeMap<String, Arc<Mutex<Content>>>>,
    /// Bytes of all of them, those without a name among them.
    bytes: Mutex<usize>,
}

impl Storage {
    /// A folder that exists.
    ///
    /// # Errors
    /// If it does not exist, is not a folder, or the system cannot confine clients to it.
    pub fn folder(path: &Path) -> io::Result<Self> {
        folder::Folder::open(path).map(Self::Folder)
    }

    /// Files in memory.
    pub fn memory(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let (mut all, mut bytes) = (BTreeMap::new(), 0);
        for (name, data) in files {
            bytes += data.len();
            let content = Content { data, id: number_of(&name), ..Content::default() };
            all.insert(name, Arc::new(Mutex::new(content)));
        }
        Self::Memory(Memory { files: Mutex::new(all), bytes: Mutex::new(bytes) })
    }

    /// Opens an existing file or folder; with `write`, a file for writing.
    ///
    /// # Errors
    /// Errors of the file system; `PermissionDenied` if it is outside, or neither a regular file nor a folder.
    pub fn open(&self, path: &str, write: bool) -> io::Result<File> {
        match self {
            Self::Folder(folder) => folder.file(path, write).map(File::Disk),
            Self::Memory(_) if path.is_empty() => Ok(File::Root),
            Self::Memory(memory) => memory.file(path).map(File::Memory),
        }
    }

    /// Makes an empty file, or a folder, that must not be there, and opens it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(&self, path: &str, folder: bool) -> io::Result<File> {
        match self {
            Self::Folder(at) => at.create(path, folder).map(File::Disk),
            Self::Memory(_) if folder || path.is_empty() || path.contains('/') => {
                Err(io::ErrorKind::Unsupported.into())
            }
            Self::Memory(memory) => {
                let mut files = locked(&memory.files);
                if files.contains_key(path) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                if files.len() >= FILES_MAX {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let content = Arc::new(Mutex::new(Content { id: number_of(path), ..Content::default() }));
                files.insert(path.to_owned(), content.clone());
                Ok(File::Memory(content))
            }
        }
    }

    /// Known facts about a file, by its name.
    ///
    /// # Errors
    /// If it does not exist, or clients cannot open it.
    pub fn stat(&self, path: &str) -> io::Result<Stat> {
        match self {
            Self::Folder(folder) => folder.stat(path),
            Self::Memory(_) => self.open(path, false)?.stat(),
        }
    }

    /// Removes the name of a file, or an empty folder, if it still is the one that was opened.
    ///
    /// # Errors
    /// Errors of the file system; the share itself cannot be removed.
    pub fn remove(&self, path: &str, file: &File) -> io::Result<()> {
        if path.is_empty() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match (self, file) {
            (Self::Folder(folder), File::Disk(disk)) => folder.remove(path, disk),
            (Self::Memory(memory), File::Memory(content)) => {
                let mut files = locked(&memory.files);
                if files.get(path).is_some_and(|named| Arc::ptr_eq(named, content)) {
                    files.remove(path);
                    // open handles keep the bytes, but they no longer count
                    *locked(&memory.bytes) -= locked(content).data.len();
                    return Ok(());
                }
                Err(io::ErrorKind::NotFound.into())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Renames a file or folder. `replace` allows replacing an existing file of that name.
    ///
    /// # Errors
    /// Errors of the file system; the share itself keeps its name.
    pub fn rename(&self, from: &str, to: &str, replace: bool) -> io::Result<()> {
        if from.is_empty() || to.is_empty() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match self {
            Self::Folder(folder) => folder.rename(from, to, replace),
            Self::Memory(_) if to.contains('/') => Err(io::ErrorKind::Unsupported.into()),
            Self::Memory(memory) => {
                let mut files = locked(&memory.files);
                if !replace && from != to && files.contains_key(to) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
                if let Some(old) = files.insert(to.to_owned(), content) {
                    *locked(&memory.bytes) -= locked(&old).data.len();
                }
                Ok(())
            }
        }
    }

    /// Makes a hard link to a file. `replace` allows replacing an existing file of that name.
    ///
    /// # Errors
    /// Errors of the file system; files in memory have one name each.
    pub fn link(&self, from: &str, to: &str, replace: bool) -> io::Result<()> {
        if from.is_empty() || to.is_empty() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match self {
            Self::Folder(folder) => folder.link(from, to, replace),
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Names in a folder that is open, sorted.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn list(&self, folder: &File) -> io::Result<Vec<String>> {
        match (self, folder) {
            (Self::Folder(_), File::Disk(disk)) => disk.list(),
            (Self::Memory(memory), File::Root) => Ok(locked(&memory.files).keys().cloned().collect()),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Changes bytes of a file that is open.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        match (self, file) {
            (_, File::Disk(disk)) => disk.write(offset, data),
            (Self::Memory(memory), File::Memory(content)) => {
                let mut content = locked(content);
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(data.len());
                if end > content.data.len() {
                    memory.resize(&mut content, end)?;
                }
                content.data[start..end].copy_from_slice(data);
                Ok(())
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    /// Cuts or extends a file that is open.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set_length(&self, file: &File, length: u64) -> io::Result<()> {
        match (self, file) {
            (_, File::Disk(disk)) => disk.set_length(length),
            (Self::Memory(memory), File::Memory(content)) => {
                memory.resize(&mut locked(content), usize::try_from(length).unwrap_or(usize::MAX))
            }
            _ => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl Memory {
    fn file(&self, path: &str) -> io::Result<Arc<Mutex<Content>>> {
        locked(&self.files).get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Sets the length of a file, within the limit for all files together.
    fn resize(&self, content: &mut Content, length: usize) -> io::Result<()> {
        let mut bytes = locked(&self.bytes);
        let others = bytes.saturating_sub(content.data.len());
        if length > content.data.len() && length > MEMORY_MAX.saturating_sub(others) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        content.data.resize(length, 0);
        *bytes = others + length;
        Ok(())
    }
}

impl File {
    /// Returns the metadata of the file.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn stat(&self) -> io::Result<Stat> {
        match self {
            Self::Disk(disk) => disk.stat(),
            Self::Root => Ok(Stat { folder: true, id: 1, ..Stat::default() }),
            Self::Memory(content) => {
                let c = locked(content);
                Ok(Stat {
                    length: c.data.len() as u64,
                    folder: false,
                    accessed: c.accessed,
                    modified: c.modified,
                    id: c.id,
                })
            }
        }
    }

    /// Bytes of it; fewer at its end.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn read(&self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(disk) => disk.read(offset, length),
            Self::Root => Err(io::ErrorKind::IsADirectory.into()),
            Self::Memory(content) => {
                let content = locked(content);
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.data.len());
                Ok(content.data[start..start.saturating_add(length as usize).min(content.data.len())].to_vec())
            }
        }
    }

    /// Sets its times.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set_times(&self, times: Times) -> io::Result<()> {
        match self {
            Self::Disk(disk) => disk.set_times(times),
            Self::Root => Ok(()),
            Self::Memory(content) => {
                let mut content = locked(content);
                content.accessed = times.accessed.unwrap_or(content.accessed);
                content.modified = times.modified.unwrap_or(content.modified);
                Ok(())
            }
        }
    }

    /// Writes buffered data to the disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn sync(&self) -> io::Result<()> {
        match self {
            Self::Disk(disk) => disk.sync(),
            Self::Root | Self::Memory(_) => Ok(()),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file id of a path that no file system numbers: the same for as long as the process runs, and never that of the
/// root.
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
    fn memory_has_an_end_for_all_files_together() {
        let storage = Storage::memory([("a".to_owned(), vec![1; 10]), ("b".to_owned(), Vec::new())]);
        let [a, b] = ["a", "b"].map(|name| storage.open(name, true).unwrap());
        let full = |done: io::Result<()>| assert_eq!(done.unwrap_err().kind(), io::ErrorKind::StorageFull);
        full(storage.set_length(&b, MEMORY_MAX as u64));
        full(storage.write(&b, MEMORY_MAX as u64 - 10, b"x"));
        full(storage.write(&b, u64::MAX, b"x"));
        storage.set_length(&b, 100).unwrap();
        storage.set_length(&a, 5).unwrap();
        assert_eq!((a.stat().unwrap().length, b.stat().unwrap().length), (5, 100));
    }

    #[test]
    fn both_kinds_do_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for storage in [Storage::folder(folder.path()).unwrap(), Storage::memory([])] {
            let x = storage.create("x", false).unwrap();
            assert_eq!(storage.create("x", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            storage.write(&x, 3, b"abc").unwrap();
            assert_eq!(x.read(0, 100).unwrap(), b"\0\0\0abc");
            storage.set_length(&x, 4).unwrap();
            let times = Times { accessed: Some(1_000_000_000_000_000_100), modified: Some(1_200_000_000_000_000_300) };
            x.set_times(times).unwrap();
            let stat = storage.stat("x").unwrap();
            assert_eq!((stat.length, stat.folder, stat.modified), (4, false, 1_200_000_000_000_000_300));
            x.set_times(Times { accessed: Some(5), modified: None }).unwrap();
            assert_eq!(x.stat().unwrap().modified, 1_200_000_000_000_000_300);
            let root = storage.open("", false).unwrap();
            assert_eq!(storage.list(&root).unwrap(), ["x"]);
            storage.create("y", false).unwrap();
            assert_eq!(storage.rename("x", "y", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            storage.rename("x", "y", true).unwrap();
            assert_eq!((storage.stat("y").unwrap().length, storage.list(&root).unwrap()), (4, vec!["y".to_owned()]));
            assert!(storage.rename("y", "../out", true).is_err() && storage.rename("x", "z", true).is_err());
            assert!(storage.rename("", "z", true).is_err() && storage.remove("", &root).is_err(), "the share itself");
            storage.remove("y", &x).unwrap();
            assert!(storage.stat("y").is_err());
            assert_eq!(x.read(3, 1).unwrap(), b"a", "who has it open can read it");
            // another file of that name is another file
            storage.create("y", false).unwrap();
            assert!(storage.remove("y", &x).is_err() && storage.stat("y").is_ok());
        }
    }
}
