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
