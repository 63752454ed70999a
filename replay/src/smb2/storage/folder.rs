//! A folder of a file system. No path leads out of it: the kernel resolves each below the folder's own handle
//! (`openat2` with `RESOLVE_BENEATH`), so that no rename or link at the wrong moment can help. Without `openat2`, names
//! are opened one by one and no link is followed.

use super::{Stat, Times};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Opens without read access: for entries that need not be readable.
#[cfg(target_os = "linux")]
const LOOK: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const LOOK: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);
/// No device becomes our terminal, and none is waited for.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
/// File mode: the owner may read and write, and others read, as far as the umask allows.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// A folder that is shared.
#[derive(Debug)]
pub struct Folder {
    root: OwnedFd,
}

/// A file or folder below it that is open.
#[derive(Debug)]
pub struct Disk {
    file: File,
    folder: bool,
}

impl Folder {
    /// # Errors
    /// If there is no such folder.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: rustix::fs::open(path, LOOK | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())? })
    }

    /// # Errors
    /// Errors of the file system.
    pub(super) fn file(&self, path: &str, write: bool) -> io::Result<Disk> {
        // a look first: a device is not even opened
        let kind = kind_of(&self.beneath(path, LOOK, Mode::empty())?)?;
        let access = if kind == FileType::Directory {
            OFlags::RDONLY | OFlags::DIRECTORY
        } else if write {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        Disk::new(self.beneath(path, access, Mode::empty())?)
    }

    /// # Errors
    /// Errors of the file system.
    pub(super) fn create(&self, path: &str, folder: bool) -> io::Result<Disk> {
        if !folder {
            return Disk::new(self.beneath(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, FILE_MODE)?);
        }
        let (parent, name) = self.parent(path)?;
        rustix::fs::mkdirat(&parent, name, FOLDER_MODE)?;
        self.file(path, false)
    }

    /// # Errors
    /// Errors of the file system.
    pub(super) fn stat(&self, path: &str) -> io::Result<Stat> {
        let handle = self.beneath(path, LOOK, Mode::empty())?;
        kind_of(&handle)?;
        stat_of(&handle)
    }

    /// # Errors
    /// Errors of the file system.
    pub(super) fn remove(&self, path: &str, file: &Disk) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let there = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let link = FileType::from_raw_mode(there.st_mode) == FileType::Symlink;
        let ours = rustix::fs::fstat(&file.file)?;
        if !link && (there.st_ino, there.st_dev) != (ours.st_ino, ours.st_dev) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let flags = if file.folder && !link { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(rustix::fs::unlinkat(&parent, name, flags)?)
    }

    /// # Errors
    /// Errors of the file system.
    pub(super) fn rename(&self, from: &str, to: &str, replace: bool) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        if replace {
            return Ok(rustix::fs::renameat(&from, old, &to, new)?);
        }
        match rename_new(&from, old, &to, new) {
            // not every file system can
            Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(Errno::NOENT) => Ok(rustix::fs::renameat(&from, old, &to, new)?),
                Err(e) => Err(e.into()),
            },
            done => Ok(done?),
        }
    }

    /// # Errors
    /// Errors of the file system.
    pub(super) fn link(&self, from: &str, to: &str, replace: bool) -> io::Result<()> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        match rustix::fs::linkat(&from, old, &to, new, AtFlags::empty()) {
            Err(Errno::EXIST) if replace => {
                let same = |there: &rustix::fs::Stat, ours: &rustix::fs::Stat| {
                    (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev)
                };
                let [ours, there] = [(&from, old), (&to, new)]
                    .map(|(at, name)| rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW));
                let there = there?;
                if same(&there, &ours?) {
                    return Ok(());
                }
                if FileType::from_raw_mode(there.st_mode) == FileType::Directory {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                rustix::fs::unlinkat(&to, new, AtFlags::empty())?;
                Ok(rustix::fs::linkat(&from, old, &to, new, AtFlags::empty())?)
            }
            done => Ok(done?),
        }
    }

    /// The folder that a path is in, and its last name.
    fn parent<'a>(&self, path: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        check(name)?;
        Ok((self.beneath(folder, LOOK | OFlags::DIRECTORY, Mode::empty())?, name))
    }

    /// Opens a file below the folder.
    #[cfg(target_os = "linux")]
    fn beneath(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        use rustix::fs::{ResolveFlags, openat2};
        /// Something was renamed while the kernel looked.
        const TRIES: u32 = 16;
        for name in path.split('/').filter(|_| !path.is_empty()) {
            check(name)?;
        }
        let path = if path.is_empty() { "." } else { path };
        // openat2 rejects flags that have no meaning together with O_PATH
        let flags = if flags.contains(LOOK) { flags | OFlags::CLOEXEC } else { flags | ALWAYS };
        let mut tried = 0;
        loop {
            tried += 1;
            match openat2(&self.root, path, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
                Err(Errno::AGAIN) if tried < TRIES => {}
                // it leads out
                Err(Errno::XDEV | Errno::LOOP) => return Err(io::ErrorKind::PermissionDenied.into()),
                done => return Ok(done?),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn beneath(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        use rustix::fs::openat;
        let mut at = openat(&self.root, ".", LOOK | OFlags::DIRECTORY | ALWAYS, Mode::empty())?;
        let mut names = path.split('/').filter(|_| !path.is_empty()).peekable();
        if names.peek().is_none() {
            return Ok(openat(&at, ".", flags | ALWAYS, mode)?);
        }
        while let Some(name) = names.next() {
            check(name)?;
            let flags = if names.peek().is_none() { flags } else { LOOK | OFlags::DIRECTORY };
            at = match openat(&at, name, flags | OFlags::NOFOLLOW | ALWAYS, mode) {
                Err(Errno::LOOP | Errno::MLINK) => return Err(io::ErrorKind::PermissionDenied.into()),
                done => done?,
            };
        }
        Ok(at)
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_new(from: &OwnedFd, old: &str, to: &OwnedFd, new: &str) -> Result<(), Errno> {
    rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_new(_: &OwnedFd, _: &str, _: &OwnedFd, _: &str) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// A name that a client may use.
fn check(name: &str) -> io::Result<()> {
    let wrong = name.is_empty() || name == "." || name == ".." || name.contains(['\0', '\\', ':']);
    if wrong { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

/// A regular file or a folder.
fn kind_of(handle: impl AsFd) -> io::Result<FileType> {
    match FileType::from_raw_mode(rustix::fs::fstat(handle)?.st_mode) {
        kind @ (FileType::RegularFile | FileType::Directory) => Ok(kind),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[allow(clippy::unnecessary_cast, clippy::cast_lossless, reason = "the types differ from system to system")]
fn stat_of(handle: impl AsFd) -> io::Result<Stat> {
    let stat = rustix::fs::fstat(handle)?;
    let ns =
        |seconds: i64, ns: u64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(ns);
    let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Ok(Stat {
        length: if folder { 0 } else { stat.st_size as u64 },
        folder,
        accessed: ns(stat.st_atime as i64, stat.st_atime_nsec as u64),
        modified: ns(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        id: stat.st_ino as u64,
    })
}

impl Disk {
    fn new(handle: OwnedFd) -> io::Result<Self> {
        let folder = kind_of(&handle)? == FileType::Directory;
        Ok(Self { file: handle.into(), folder })
    }

    pub(super) fn stat(&self) -> io::Result<Stat> {
        stat_of(&self.file)
    }

    pub(super) fn read(&self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        // no more room than the file can fill
        let left = self.stat()?.length.saturating_sub(offset).min(length.into());
        let mut data = vec![0; left as usize];
        let mut have = 0;
        while have < data.len() {
            match self.file.read_at(&mut data[have..], offset + have as u64) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        data.truncate(have);
        Ok(data)
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    pub(super) fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    pub(super) fn set_times(&self, times: Times) -> io::Result<()> {
        let of = |time: Option<u64>| match time {
            Some(ns) => Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ },
            None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        };
        let times = Timestamps { last_access: of(times.accessed), last_modification: of(times.modified) };
        Ok(rustix::fs::futimens(&self.file, &times)?)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        if self.folder { Ok(()) } else { self.file.sync_data() }
    }

    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Storage;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn no_path_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("share");
        fs::create_dir(&root).unwrap();
        fs::write(outside.path().join("secret"), "s").unwrap();
        fs::write(root.join("a"), "hello").unwrap();
        let storage = Storage::folder(&root).unwrap();
        assert_eq!(storage.open("a", false).unwrap().read(1, 3).unwrap(), b"ell");
        for path in ["../secret", "a/../../secret", "..", "./a", "a//", "/a"] {
            assert!(storage.open(path, false).is_err() && storage.stat(path).is_err(), "{path}");
        }
        symlink(outside.path(), root.join("link")).unwrap();
        symlink(outside.path().join("new"), root.join("dangling")).unwrap();
        assert!(storage.open("link/secret", false).is_err());
        assert!(storage.create("link/new", false).is_err() && storage.create("link/folder", true).is_err());
        assert!(storage.create("dangling", false).is_err());
        assert!(storage.rename("a", "link/a", true).is_err());
        assert!(!outside.path().join("new").exists());
        #[cfg(target_os = "linux")]
        {
            symlink("a", root.join("inside")).unwrap();
            assert_eq!(
                storage.open("inside", false).unwrap().read(0, 5).unwrap(),
                b"hello",
                "a link that stays inside is followed"
            );
        }
    }

    /// A folder that is repeatedly exchanged for a link to the outside while it is read.
    #[test]
    fn no_rename_under_an_open_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("share");
        fs::create_dir_all(root.join("d")).unwrap();
        fs::create_dir(outside.path().join("else")).unwrap();
        fs::write(root.join("d/f"), "inside").unwrap();
        fs::write(outside.path().join("else/f"), "secret").unwrap();
        symlink(outside.path().join("else"), root.join("l")).unwrap();
        let storage = Storage::folder(&root).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let swap = |a: &str, b: &str| fs::rename(root.join(a), root.join(b)).unwrap();
                    swap("d", "x");
                    swap("l", "d");
                    swap("d", "l");
                    swap("x", "d");
                }
            });
            // on a busy machine, the other thread may rest for long with the link in the folder's place
            let (mut tries, mut read, mut wrong) = (0, 0, None);
            while tries < 20_000 || read == 0 && tries < 20_000_000 {
                tries += 1;
                if let Ok(file) = storage.open("d/f", false) {
                    wrong = wrong.or(Some(file.read(0, 10).unwrap()).filter(|bytes| bytes != b"inside"));
                    read += 1;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!((read > 0, wrong), (true, None));
        });
    }

    #[test]
    fn only_regular_files_and_folders_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, FILE_MODE, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        let storage = Storage::folder(folder.path()).unwrap();
        for (name, write) in [("fifo", false), ("fifo", true), ("socket", false)] {
            assert_eq!(storage.open(name, write).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{name}");
            assert!(storage.stat(name).is_err(), "and they are not shown");
        }
    }

    #[test]
    fn a_file_gets_a_second_name_and_none_outside() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("share");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "hello").unwrap();
        fs::write(root.join("other"), "else").unwrap();
        symlink(outside.path(), root.join("out")).unwrap();
        let storage = Storage::folder(&root).unwrap();
        storage.link("a", "b", false).unwrap();
        assert_eq!(
            (fs::read(root.join("b")).unwrap(), storage.stat("a").unwrap().id),
            (b"hello".to_vec(), storage.stat("b").unwrap().id)
        );
        assert_eq!(storage.link("a", "other", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for name in ["a", "b", "other"] {
            storage.link("a", name, true).unwrap();
            assert_eq!(fs::read(root.join(name)).unwrap(), b"hello", "{name}");
        }
        assert!(
            storage.link("a", "out/c", true).is_err()
                && storage.link("a", "../c", true).is_err()
                && storage.link("", "c", true).is_err()
        );
        assert!(!outside.path().join("c").exists());
    }

    #[test]
    fn a_folder_with_entries_stays() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::folder(folder.path()).unwrap();
        let made = storage.create("d", true).unwrap();
        let file = storage.create("d/f", false).unwrap();
        assert_eq!(storage.remove("d", &made).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        storage.remove("d/f", &file).unwrap();
        storage.remove("d", &made).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
