//! Capturing without root. A user who may not capture but is in the right group is switched to a copy of this program
//! that has the capability. Packages create that copy with `rdmascope-capture-rights on`.

#[cfg(target_os = "linux")]
use std::path::Path;

/// The copy: owned by root and the group, and executable by nobody else.
#[cfg(target_os = "linux")]
const COPY: &str = "/usr/lib/rdmascope/rdmascope";
/// The bit of CAP_NET_RAW in a set of capabilities (linux/capability.h).
#[cfg(target_os = "linux")]
const CAP_NET_RAW: u32 = 13;

/// True if a process with this `/proc/self/status` may capture.
#[cfg(target_os = "linux")]
fn may_capture(status: &str) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    // without the line, let the kernel decide
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_none_or(|set| set >> CAP_NET_RAW & 1 == 1)
}

/// Becomes the copy, with the same arguments, if that helps. Otherwise returns, and the missing right is reported as
/// usual.
#[cfg(target_os = "linux")]
pub(crate) fn take() {
    use std::os::unix::process::CommandExt;
    let copy = Path::new(COPY);
    let is_copy = std::env::current_exe().is_ok_and(|path| path == copy);
    if is_copy || !copy.exists() || may_capture(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| COPY.into());
    // returns only if it may not be run
    let _ = std::process::Command::new(copy).arg0(name).args(arguments).exec();
}

/// Nothing to become there.
#[cfg(not(target_os = "linux"))]
pub(crate) fn take() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_bit_of_the_capability_tells() {
        assert!(may_capture("Name:\tx\nCapEff:\t0000000000002000\n") && may_capture("CapEff:\t000001ffffffffff\n"));
        assert!(!may_capture("CapEff:\t0000000000000000\n") && !may_capture("CapEff:\t0000000000001000\n"));
        assert!(may_capture("") && may_capture("CapEff:\tx\n"));
    }
}
