//! Platform differences of the reports: each function has a form for Unix and one for other systems.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Sets the flag at each SIGHUP.
#[cfg(unix)]
pub(crate) fn on_hangup(flag: &Arc<AtomicBool>) -> io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGHUP, flag.clone()).map(drop)
}

/// There is no such signal.
#[cfg(not(unix))]
pub(crate) fn on_hangup(_: &Arc<AtomicBool>) -> io::Result<()> {
    Ok(())
}

/// Messages about a key file that others than its owner can read.
#[cfg(unix)]
pub fn open_to_others(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mode = Some(metadata.mode() & 0o7777).filter(|mode| mode & 0o044 != 0)?;
    Some(format!("other users can read {} (mode {mode:04o}); chmod 600 keeps its keys to you", path.display()))
}

/// Nothing: modes are of Unix.
#[cfg(not(unix))]
pub fn open_to_others(_: &Path) -> Option<String> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_file_that_others_can_read_is_reported_with_the_cure() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let said = |mode| {
            set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            open_to_others(file.path())
        };
        assert_eq!((said(0o600), said(0o700)), (None, None));
        for mode in [0o640, 0o604, 0o644] {
            assert!(said(mode).is_some_and(|word| word.contains(&format!("{mode:04o}")) && word.contains("chmod 600")));
        }
        assert_eq!(open_to_others(Path::new("/nothing/there")), None);
    }
}
