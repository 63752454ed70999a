//! Dropping rights that were only needed for opening: user, groups, capabilities, and the ability to regain them by
//! starting a program.
//!
//! Spec: setresuid(2), capabilities(7), PR_SET_NO_NEW_PRIVS(2const).

use std::ffi::CString;
use std::io;

use super::Dropped;

/// Gives up all privileges. Only the calling thread loses its capabilities, so there should be no other thread yet.
///
/// The superuser becomes `user`, or else the user who called sudo; `root` stays root. Others lose their capabilities.
/// Unless it stays root, the process cannot gain privileges any more: neither it nor its children get anything from a
/// set-user-ID program or a file's capabilities.
///
/// # Errors
/// If the user does not exist, or the system refuses.
pub fn drop_privileges(user: Option<&str>) -> io::Result<Dropped> {
    let dropped = drop_ids_and_capabilities(user)?;
    if dropped != Dropped::KeptRoot {
        // SAFETY: no memory is passed.
        #[allow(unsafe_code)]
        let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(dropped)
}

fn drop_ids_and_capabilities(user: Option<&str>) -> io::Result<Dropped> {
    // SAFETY: no memory is passed, and it never fails.
    #[allow(unsafe_code)]
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        return no_capabilities();
    }
    if user == Some("root") {
        return Ok(Dropped::KeptRoot);
    }
    let (uid, gid, name) = match user {
        Some(name) => look_up(name)?,
        None => {
            let id = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
            match (id("SUDO_UID"), id("SUDO_GID")) {
                (Some(uid), Some(gid)) if uid != 0 => {
                    (uid, gid, std::env::var("SUDO_USER").unwrap_or_else(|_| uid.to_string()))
                }
                _ => return Ok(Dropped::KeptRoot),
            }
        }
    };
    // SAFETY: no memory is passed but an empty list. The C library does this for all threads.
    #[allow(unsafe_code)]
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(gid, gid, gid) == 0
            && libc::setresuid(uid, uid, uid) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above. It has to fail: dropped privileges cannot be regained.
    #[allow(unsafe_code)]
    let back = unsafe { libc::setuid(0) };
    if back == 0 {
        return Err(io::Error::other("root privileges could be regained"));
    }
    Ok(Dropped::User(name))
}

/// Number and group of a user, by name or number.
fn look_up(name: &str) -> io::Result<(u32, u32, String)> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("there is no user \"{name}\""));
    let c_name = CString::new(name).map_err(|_| unknown())?;
    // SAFETY: a string that ends with a zero; what comes back is read before anybody else can ask, since no other
    // thread does.
    #[allow(unsafe_code)]
    unsafe {
        let mut entry = libc::getpwnam(c_name.as_ptr());
        if entry.is_null()
            && let Ok(uid) = name.parse::<u32>()
        {
            entry = libc::getpwuid(uid);
        }
        if entry.is_null() {
            return Err(unknown());
        }
        let name = std::ffi::CStr::from_ptr((*entry).pw_name).to_string_lossy().into_owned();
        Ok(((*entry).pw_uid, (*entry).pw_gid, name))
    }
}

/// `struct __user_cap_header_struct`, version 3.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`; there are two, for 64 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn no_capabilities() -> io::Result<Dropped> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: the kernel writes two of the structures, which `data` has.
    #[allow(unsafe_code)]
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if got == 0 && data.iter().all(|d| d.permitted == 0 && d.effective == 0) {
        return Ok(Dropped::Nothing);
    }
    let none = [Data::default(); 2];
    // SAFETY: the kernel reads two of the structures, which `none` has.
    #[allow(unsafe_code)]
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, none.as_ptr()) };
    if set == 0 { Ok(Dropped::Capabilities) } else { Err(io::Error::last_os_error()) }
}
