//! A system that cannot confine clients to a folder: there is no such folder, and nothing can be asked of one.

use super::{Stat, Times};
use std::io;
use std::path::Path;

/// A folder that is served: none.
#[derive(Debug)]
pub enum Folder {}

/// An open file or folder in it: none.
#[derive(Debug)]
pub enum Disk {}

impl Folder {
    pub(super) fn open(_: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "folders are shared on Unix only"))
    }

    pub(super) fn file(&self, _: &str, _: bool) -> io::Result<Disk> {
        match *self {}
    }

    pub(super) fn create(&self, _: &str, _: bool) -> io::Result<Disk> {
        match *self {}
    }

    pub(super) fn stat(&self, _: &str) -> io::Result<Stat> {
        match *self {}
    }

    pub(super) fn remove(&self, _: &str, _: &Disk) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn rename(&self, _: &str, _: &str, _: bool) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn link(&self, _: &str, _: &str, _: bool) -> io::Result<()> {
        match *self {}
    }
}

impl Disk {
    pub(super) fn stat(&self) -> io::Result<Stat> {
        match *self {}
    }

    pub(super) fn read(&self, _: u64, _: u32) -> io::Result<Vec<u8>> {
        match *self {}
    }

    pub(super) fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn set_length(&self, _: u64) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn set_times(&self, _: Times) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        match *self {}
    }
}
