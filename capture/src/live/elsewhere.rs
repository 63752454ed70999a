//! Live capture on systems where only libpcap can do it: the names of `linux/mod.rs`. The functions return an error or
//! nothing.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Descriptor, Dropped, Listed, Live, Options};
use crate::error::{Error, Problem, Result};

/// Message for users who want to capture.
const INSTEAD: &str = if cfg!(windows) {
    "live capture on this system; pktmon or the card's own tool captures here, and their files are read"
} else {
    "live capture on this system without libpcap (build with --features libpcap)"
};

/// Expands names of interfaces: here they are unchanged.
pub(super) fn expand(names: &[String]) -> Vec<String> {
    names.to_vec()
}

/// Refuses.
pub(super) fn open_one(name: &str, _: &Options) -> Result<Vec<Box<dyn Live>>> {
    Err(Error::new(name, Problem::Unsupported(INSTEAD.to_owned())))
}

/// Waits a little, because interfaces opened by libpcap are polled repeatedly.
pub(super) fn poll(_: &[Descriptor], milliseconds: u32) -> Vec<bool> {
    std::thread::sleep(Duration::from_millis(milliseconds.min(2).into()));
    Vec::new()
}

/// The version of the system, which is unknown here.
pub(super) fn release() -> Option<String> {
    None
}

/// Lists everything that can be captured from; interfaces of libpcap are not listed.
pub fn list(_rdma_root: &Path) -> Vec<Listed> {
    Vec::new()
}

/// Keeps the rights that there are, and refuses to become another user.
///
/// # Errors
/// If a user is named.
pub fn drop_privileges(user: Option<&str>) -> io::Result<Dropped> {
    match user {
        None => Ok(Dropped::Nothing),
        Some(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "becoming another user is not supported on this system"))
        }
    }
}
