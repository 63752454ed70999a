//! The file of a live capture, which other programs follow while it grows, in a folder where others may write too.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

use super::whole::Existing;
use crate::error::{Error, Problem, Result};
use crate::system;

/// Makes a new file that only its owner may read, without following a link: for a live capture, in a folder where
/// others may write. A device or a named pipe is written to directly.
///
/// # Errors
/// [`Problem::Exists`] if an existing file must be kept, and errors of the operating system.
pub fn fresh(path: &Path, existing: Existing) -> Result<File> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => Error::new(path, Problem::Exists),
        _ => Error::new(path, Problem::Create(e)),
    };
    // Of a link only itself is looked at.
    match std::fs::symlink_metadata(path) {
        Ok(meta) if is_device(&meta) || leads_to_device(path, &meta) => {
            return OpenOptions::new().write(true).open(path).map_err(failed);
        }
        Ok(_) if existing == Existing::Replace => std::fs::remove_file(path).map_err(failed)?,
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    system::follow_no_link(&mut options);
    options.open(path).map_err(failed)
}

fn is_device(meta: &Metadata) -> bool {
    !meta.is_file() && !meta.is_dir() && !meta.is_symlink()
}

/// True if a link of the system leads to something other than a regular file, as `/dev/stdout` does.
fn leads_to_device(path: &Path, meta: &Metadata) -> bool {
    meta.is_symlink() && path.starts_with("/dev") && path.metadata().is_ok_and(|meta| is_device(&meta))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn captures_are_for_their_owner_and_follow_no_link() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "mine").unwrap();
        let path = folder.path().join("trace");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(matches!(fresh(&path, Existing::Keep).unwrap_err().problem(), Problem::Exists));
        fresh(&path, Existing::Replace).unwrap().write_all(b"frames").unwrap();
        assert_eq!((std::fs::read(&victim).unwrap(), mode(&path)), (b"mine".to_vec(), 0o600));
        // a link that leads nowhere yet
        let dangling = folder.path().join("dangling");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &dangling).unwrap();
        assert!(fresh(&dangling, Existing::Keep).is_err());
        assert!(!folder.path().join("elsewhere").exists());
        assert!(fresh(Path::new("/dev/null"), Existing::Keep).is_ok());
    }
}
