//! Platform differences of files: each function has a form for Unix and one for Windows. Live capture has files of its
//! own for that (`live/linux`, `live/elsewhere.rs`).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use memmap2::Mmap;

pub(crate) use this::{
    follow_no_link, for_who_the_umask_lets, is_local, leave_behind, map_now, read_at, read_on, read_whole, same_file,
    write_all_at,
};

/// Begins to bring these bytes, of a map for example, from memory into the processor's cache, and does not wait for
/// them. Where that cannot be asked for, they are read.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    /// Two lines of memory: processors fetch them in pairs.
    const LINES: usize = 128;
    for line in bytes.chunks(LINES) {
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code)]
        // SAFETY: this reads nothing as far as the program can tell, and the address is one of the slice.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::hint::black_box(line[0]);
    }
}

#[cfg(unix)]
mod this {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

    /// Reads at an offset, without changing the position of [`read_on`].
    pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    /// Writes at an offset, without changing the position of [`read_on`].
    pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Continues reading where the last such call ended, which is `at`.
    pub(crate) fn read_on(mut file: &File, at: &mut u64, buffer: &mut [u8]) -> io::Result<usize> {
        let n = file.read(buffer)?;
        *at += n as u64;
        Ok(n)
    }

    /// Tells that a map will be read from its beginning to its end.
    pub(crate) fn read_whole(map: &Mmap) {
        // Advice; if it is not taken, nothing is lost but speed.
        let _ = map.advise(memmap2::Advice::Sequential);
    }

    /// Maps pages at once that would be mapped one by one when they are touched, and waits for those that are still on
    /// the disk. Where the system has no such call, touching them does it.
    pub(crate) fn map_now(map: &Mmap, start: usize, len: usize) {
        // Advice; an error, as of a file that was truncated, is found again by who reads the page.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::PopulateRead, start, len);
        #[cfg(not(target_os = "linux"))]
        let _ = (map, start, len);
    }

    /// Releases the pages of a map, which must be of a file and never written to. They stay in the page cache.
    pub(crate) fn leave_behind(map: &Mmap, start: usize, len: usize) {
        #[allow(unsafe_code)]
        // SAFETY: if a released page of such a map is touched again, by a record that is still held or by another walk,
        // it has the bytes of the file again.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len) };
    }

    /// True if the file system is local to this machine, so that no other machine can truncate the file unnoticed.
    /// Unknown ones count as local.
    pub(crate) fn is_local(file: &File) -> bool {
        #[cfg(target_os = "linux")]
        {
            /// NFS, SMB (three generations), FUSE, AFS, Ceph, 9P, Lustre: linux/magic.h and the clients' own headers.
            const REMOTE: [u32; 9] = [
                0x6969,
                0x517b,
                0xff53_4d42,
                0xfe53_4d42,
                0x6573_5546,
                0x5346_414f,
                0x00c3_6400,
                0x0102_1997,
                0x0bd0_0bd0,
            ];
            rustix::fs::fstatfs(file).is_ok_and(|s| !REMOTE.contains(&(s.f_type as u32)))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = file;
            true
        }
    }

    /// A file that is made is for its owner alone, and no link is followed to make it.
    pub(crate) fn follow_no_link(options: &mut OpenOptions) {
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    }

    /// Gives a temporary file the permissions that the umask allows.
    pub(crate) fn for_who_the_umask_lets(builder: &mut tempfile::Builder<'_, '_>) {
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }

    /// True if two names are those of one file.
    pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
        let id = |path: &Path| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
        id(a).is_some_and(|a| id(b) == Some(a))
    }
}

#[cfg(windows)]
mod this {
    use super::*;
    use std::os::windows::fs::{FileExt, OpenOptionsExt};

    /// Reads at an offset. The position of the file moves: nothing relies on it.
    pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.seek_read(buffer, offset)
    }

    /// Writes at an offset. The position of the file moves: nothing relies on it.
    pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.seek_write(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads on from `at`, wherever the position of the file is.
    pub(crate) fn read_on(file: &File, at: &mut u64, buffer: &mut [u8]) -> io::Result<usize> {
        let n = file.seek_read(buffer, *at)?;
        *at += n as u64;
        Ok(n)
    }

    /// There is no such advice.
    pub(crate) fn read_whole(_: &Mmap) {}

    /// There is no such call.
    pub(crate) fn map_now(_: &Mmap, _: usize, _: usize) {}

    /// The system takes pages back by itself.
    pub(crate) fn leave_behind(_: &Mmap, _: usize, _: usize) {}

    /// A file that is mapped cannot be truncated here.
    pub(crate) fn is_local(_: &File) -> bool {
        true
    }

    /// Opens a reparse point, such as a symbolic link, as itself. The folder determines who may read the file.
    pub(crate) fn follow_no_link(options: &mut OpenOptions) {
        /// `FILE_FLAG_OPEN_REPARSE_POINT` of winbase.h.
        const OPEN_REPARSE_POINT: u32 = 0x0020_0000;
        options.custom_flags(OPEN_REPARSE_POINT);
    }

    /// Does nothing: the folder determines who may read the file.
    pub(crate) fn for_who_the_umask_lets(_: &mut tempfile::Builder<'_, '_>) {}

    /// True if two names refer to the same file, also through links; not through hard links.
    pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
        matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
    }
}
