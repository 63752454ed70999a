//! An output that gets its name only when it is complete, and never replaces an input.
//!
//! ```text
//!   WholeFile::create(path, inputs, …) ─▶ .name.XXXXXX beside it ─▶ write … ─▶ finish: fsync, rename
//!                                    └▶ dropped: the file beside it is removed, a file at `path` stays
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Problem, Result};
use crate::system;

/// Treatment of an existing file with the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Refuse with [`Problem::Exists`], when the output is created and again when it is finished.
    #[default]
    Keep,
    /// Replace it when the output is finished.
    Replace,
}

/// Permissions of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Permissions as the umask allows.
    #[default]
    Umask,
    /// Only the user may read it (mode 0600): for captures, which contain private data.
    Private,
}

/// A file that is written beside its final name, and renamed when it is complete.
#[derive(Debug)]
pub struct WholeFile {
    to: To,
    path: PathBuf,
    existing: Existing,
    written: u64,
}

#[derive(Debug)]
enum To {
    Beside(NamedTempFile),
    /// A device or a pipe: it cannot be replaced by a file.
    Itself(File),
}

/// True if a file that the output may replace exists at `path`.
///
/// # Errors
/// [`Problem::IsInput`] if it is one of the `inputs`, by device and inode, under any name (`-` is ignored);
/// [`Problem::Create`] if it is a directory.
pub fn stands_at(path: &Path, inputs: &[PathBuf]) -> Result<bool> {
    if inputs.iter().any(|input| input.as_os_str() != "-" && system::same_file(path, input)) {
        return Err(Error::new(path, Problem::IsInput));
    }
    match fs::symlink_metadata(path) {
        Ok(_) if path.is_dir() => Err(Error::new(path, Problem::Create(io::ErrorKind::IsADirectory.into()))),
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::new(path, Problem::Create(e))),
    }
}

impl WholeFile {
    /// Begins the output that will be at `path`.
    ///
    /// A symbolic link at `path` is itself replaced, not its target. A device or a pipe is written directly.
    ///
    /// # Errors
    /// [`Problem::IsInput`] if `path` is one of the `inputs`, [`Problem::Exists`] if an existing file must be kept, and
    /// errors of the operating system.
    pub fn create(path: impl AsRef<Path>, inputs: &[PathBuf], existing: Existing, access: Access) -> Result<WholeFile> {
        let path = path.as_ref();
        let failed = |e: io::Error| Error::new(path, Problem::Create(e));
        let stands = stands_at(path, inputs)?;
        let is_special = stands && fs::metadata(path).is_ok_and(|m| !m.is_file());
        let to = if is_special {
            To::Itself(OpenOptions::new().write(true).open(path).map_err(failed)?)
        } else if stands && existing == Existing::Keep {
            return Err(Error::new(path, Problem::Exists));
        } else {
            To::Beside(beside(path, access).map_err(failed)?)
        };
        Ok(WholeFile { to, path: path.to_owned(), existing, written: 0 })
    }

    /// The name that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its final name. All data is on the disk then.
    ///
    /// # Errors
    /// Errors of the operating system; [`Problem::Exists`] if the name was taken meanwhile by a file that must be kept.
    /// Then nothing is left of the output.
    pub fn finish(self) -> Result<()> {
        let WholeFile { to, path, existing, written } = self;
        let To::Beside(file) = to else { return Ok(()) };
        file.as_file().sync_all().map_err(|source| Error::new(&path, Problem::Write { offset: written, source }))?;
        let named = match existing {
            Existing::Keep => file.persist_noclobber(&path),
            Existing::Replace => file.persist(&path),
        };
        named.map(drop).map_err(|e| {
            Error::new(
                &path,
                if e.error.kind() == io::ErrorKind::AlreadyExists { Problem::Exists } else { Problem::Create(e.error) },
            )
        })
    }
}

/// Makes the file in the folder of `path`, so that it can be renamed. Its name is not predictable, and no existing file
/// is followed or opened.
fn beside(path: &Path, access: Access) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    if access == Access::Umask {
        system::for_who_the_umask_lets(&mut builder);
    }
    // the message of the library ends with the name of the temporary file, which the user did not choose
    builder.tempfile_in(folder).map_err(|e| match e.to_string().split_once(" at path ") {
        Some((problem, _)) => io::Error::new(e.kind(), problem.to_owned()),
        None => e,
    })
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.to {
            To::Beside(file) => file.write(bytes)?,
            To::Itself(file) => file.write(bytes)?,
        };
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Beside(file) => file.flush(),
            To::Itself(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_stood_there_stays_until_the_output_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        fs::write(&path, "old").unwrap();
        let mut file = WholeFile::create(&path, &[], Existing::Replace, Access::Umask).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.finish().unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), names(folder.path())),
            ("new", vec!["out.txt".to_owned()])
        );
        // given up: nothing is left of it
        let mut file = WholeFile::create(&path, &[], Existing::Replace, Access::Umask).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), names(folder.path())),
            ("new", vec!["out.txt".to_owned()])
        );
    }

    #[test]
    fn a_file_is_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let create = || WholeFile::create(&path, &[], Existing::Keep, Access::Umask);
        let early = create().unwrap();
        create().unwrap().finish().unwrap();
        assert!(matches!(create().unwrap_err().problem(), Problem::Exists));
        // another file took the name while this one was written
        assert!(matches!(early.finish().unwrap_err().problem(), Problem::Exists));
        assert_eq!(names(folder.path()), ["out.txt"]);
    }

    #[cfg(unix)]
    #[test]
    fn an_input_is_no_output_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("in.pcap");
        fs::write(&input, "frames").unwrap();
        let (hard, soft) = (folder.path().join("hard"), folder.path().join("soft"));
        fs::hard_link(&input, &hard).unwrap();
        std::os::unix::fs::symlink(&input, &soft).unwrap();
        let inputs = [PathBuf::from("-"), input.clone()];
        for path in [&input, &hard, &soft, &folder.path().join("./in.pcap")] {
            let refused = WholeFile::create(path, &inputs, Existing::Replace, Access::Umask).unwrap_err();
            assert!(matches!(refused.problem(), Problem::IsInput), "{refused}");
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "frames");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_replaced_and_not_followed_and_a_device_stays_one() {
        use std::os::unix::fs::{FileTypeExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let (other, link) = (folder.path().join("other"), folder.path().join("link"));
        fs::write(&other, "somebody's").unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let mut file = WholeFile::create(&link, &[], Existing::Replace, Access::Private).unwrap();
        file.write_all(b"ours").unwrap();
        file.finish().unwrap();
        assert_eq!(
            (fs::read_to_string(&other).unwrap().as_str(), fs::read_to_string(&link).unwrap().as_str()),
            ("somebody's", "ours")
        );
        assert_eq!(fs::symlink_metadata(&link).unwrap().permissions().mode() & 0o777, 0o600);
        WholeFile::create("/dev/null", &[], Existing::Keep, Access::Umask).unwrap().finish().unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }
}
