//! Properties of network interfaces as the system reports them: names, state, and offloads that change frames before
//! they are captured.
//!
//! Spec: netdevice(7), and ethtool's header for the offloads.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::filter::Begins;
use crate::LinkType;

/// IP packets without a header of the link (rmnet and others); the C library does not name it.
const ARPHRD_RAWIP: u16 = 519;

/// Known facts about an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) index: u32,
    /// IFF_UP and its like.
    pub(super) flags: u32,
    /// ARPHRD_ETHER and its like.
    pub(super) hardware: u16,
    /// Offloads that change captured frames; `None` if the driver does not report them.
    pub(super) gro: Option<bool>,
    pub(super) lro: Option<bool>,
    pub(super) tso: Option<bool>,
}

impl Facts {
    pub(super) fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    pub(super) fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }

    /// Link type of its frames; `None` for those that are not captured.
    pub(super) fn link_type(&self) -> Option<(LinkType, Begins)> {
        match self.hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some((LinkType::ETHERNET, Begins::Ethernet)),
            // no link header, or one without information: the frames begin with IP
            libc::ARPHRD_NONE
            | ARPHRD_RAWIP
            | libc::ARPHRD_PPP
            | libc::ARPHRD_TUNNEL
            | libc::ARPHRD_TUNNEL6
            | libc::ARPHRD_SIT
            | libc::ARPHRD_IPGRE
            | libc::ARPHRD_INFINIBAND => Some((LinkType::RAW, Begins::Ip)),
            _ => None,
        }
    }

    /// Remarks for the reader of the capture.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.gro == Some(true) || self.lro == Some(true) {
            let which = if self.lro == Some(true) { "lro" } else { "gro" };
            remarks.push(format!(
                "{}: receive offload is on: TCP segments may be captured joined together, longer than they were on the \
                    wire (ethtool -K {} \
                {which} off)",
                self.name, self.name
            ));
        }
        if self.tso == Some(true) {
            remarks.push(format!(
                "{}: transmit offload is on: TCP segments that go out are captured before they are cut, and without \
                    checksum (ethtool -K \
                {} tso off)",
                self.name, self.name
            ));
            if self.is_loopback() {
                remarks.push(format!(
                    "{}: RoCE of rdmascope itself (peer, replay, probe) may be captured joined together here, too: the \
                        analysis takes it apart",
                    self.name
                ));
            }
        }
        remarks
    }
}

/// The names of all interfaces.
pub(super) fn names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list is read up to its end, an entry with index 0, and then freed by its library.
    #[allow(unsafe_code)]
    unsafe {
        let list = libc::if_nameindex();
        let mut entry = list;
        while !entry.is_null() && (*entry).if_index != 0 {
            names.push(std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

/// `None` if there is no such interface.
pub(super) fn facts(name: &str) -> Option<Facts> {
    let c_name = CString::new(name).ok().filter(|n| !n.is_empty() && n.as_bytes().len() < libc::IFNAMSIZ)?;
    // SAFETY: a string that ends with a zero.
    #[allow(unsafe_code)]
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    if index == 0 {
        return None;
    }
    let mut facts = Facts { name: name.to_owned(), index, ..Facts::default() };
    let Ok(fd) = any_socket() else { return Some(facts) };
    if let Ok(request) = ask(&fd, &c_name, libc::SIOCGIFFLAGS as _) {
        // SAFETY: the call that succeeded writes this member.
        #[allow(unsafe_code)]
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        facts.flags = u32::from(flags as u16);
    }
    if let Ok(request) = ask(&fd, &c_name, libc::SIOCGIFHWADDR as _) {
        // SAFETY: the call that succeeded writes this member.
        #[allow(unsafe_code)]
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        facts.hardware = address.sa_family;
    }
    const ETHTOOL_GTSO: u32 = 0x1e;
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETHTOOL_GGRO: u32 = 0x2b;
    const ETH_FLAG_LRO: u32 = 1 << 15;
    facts.tso = ethtool(&fd, &c_name, ETHTOOL_GTSO).map(|v| v != 0);
    facts.gro = ethtool(&fd, &c_name, ETHTOOL_GGRO).map(|v| v != 0);
    facts.lro = ethtool(&fd, &c_name, ETHTOOL_GFLAGS).map(|v| v & ETH_FLAG_LRO != 0);
    Some(facts)
}

/// Bits per second, if the interface has a speed.
pub(super) fn speed(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    text.trim().parse::<i64>().ok().filter(|s| *s > 0).map(|mbit| mbit as u64 * 1_000_000)
}

/// Number of queues on which frames come in, at least 1: `ETHTOOL_GCHANNELS`.
pub(super) fn queues(name: &str) -> usize {
    const GET_CHANNELS: u32 = 0x3c;
    let ask = || {
        let name = CString::new(name).ok()?;
        // the command, four maxima, then the queues for reception, for sending, for other purposes, for both
        let [_, _, _, _, _, receive, _, _, both] = words::<9>(&any_socket().ok()?, &name, GET_CHANNELS)?;
        usize::try_from(receive.saturating_add(both)).ok()
    };
    ask().unwrap_or(1).max(1)
}

/// Number of frames that the interface, or the kernel on its behalf, has dropped on reception: columns drop and fifo of
/// `/proc/net/dev`, which belongs to the current network namespace.
pub(super) fn dropped(name: &str) -> u64 {
    std::fs::read_to_string("/proc/self/net/dev").ok().and_then(|text| dropped_in(&text, name)).unwrap_or(0)
}

fn dropped_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(':').filter(|(n, _)| n.trim() == name))?.1;
    let columns: Vec<u64> = line.split_whitespace().map(|c| c.parse().unwrap_or(0)).collect();
    Some(columns.get(3)? + columns.get(4)?)
}

fn any_socket() -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: no memory is passed; the descriptor is new, so nobody else has it.
    #[allow(unsafe_code)]
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn request(name: &CString) -> libc::ifreq {
    // SAFETY: numbers and arrays of numbers, for which all zeros are a value.
    #[allow(unsafe_code)]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    request
}

fn ask(fd: &OwnedFd, name: &CString, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut request = request(name);
    // SAFETY: the requests used here read and write one `ifreq`.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
}

fn ethtool(fd: &OwnedFd, name: &CString, command: u32) -> Option<u32> {
    words::<2>(fd, name, command).map(|[_, data]| data)
}

/// The answer to a command of ethtool whose structure has `N` words.
fn words<const N: usize>(fd: &OwnedFd, name: &CString, command: u32) -> Option<[u32; N]> {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    let mut value = [0; N];
    value[0] = command;
    let mut request = request(name);
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: the commands used here read and write a structure of words, of which `value` has as many (two of `struct
    // ethtool_value`, nine of `struct ethtool_channels`) and which lives until the call returns.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    // read as the kernel may have left it
    let value = std::hint::black_box(value);
    (result >= 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_known_everywhere() {
        assert!(names().contains(&"lo".to_owned()));
        let lo = facts("lo").unwrap();
        assert!(lo.is_loopback() && lo.index > 0);
        assert_eq!(lo.link_type(), Some((LinkType::ETHERNET, Begins::Ethernet)));
        assert_eq!(facts("no-such-if"), None);
        assert_eq!(facts(""), None);
        assert_eq!(facts("a name that is far too long"), None);
        assert_eq!(facts("l\0o"), None);
    }

    #[test]
    fn drops_are_those_of_reception() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls \
            carrier compressed\n    \
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0:100 2 3 40 50 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(
            (dropped_in(text, "lo"), dropped_in(text, "eth0"), dropped_in(text, "eth1")),
            (Some(9), Some(90), None)
        );
    }
}
