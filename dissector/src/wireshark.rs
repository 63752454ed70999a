//! Names that only Wireshark knows: protocols and fields that are not decoded here, names that it has given up, its
//! macros.
//!
//! A stored filter may name any of them. A field that we do not decode is absent from every frame; a renamed one is
//! found under its new name.

/// Names of Wireshark 4.6, one a line, ascending, without those that are decoded here. `http` and `http.*`: a protocol,
/// and all fields under it. A test of the package `rdmascope` makes the file.
const NAMES: &str = include_str!("wireshark-names.txt");

/// Macros that Wireshark has from the start.
pub(crate) const MACROS: [(&str, &str); 3] = [
    ("private_ipv4", "$1 in {10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16}"),
    ("private_ipv6", "ipv6 && $1 == fc00::/7"),
    ("private_ethernet", "$1[0] & 0x0f == 2"),
];

/// Names that fields had in Wireshark 4.0, and their names in 4.6.
const RENAMED: [(&str, &str); 20] = [
    ("ntlmssp.negotiate00000008", "ntlmssp.unused00000008"),
    ("ntlmssp.negotiate00000100", "ntlmssp.unused00000100"),
    ("ntlmssp.negotiate00004000", "ntlmssp.unused00004000"),
    ("ntlmssp.negotiatent00200000", "ntlmssp.unused00200000"),
    ("ntlmssp.negotiatent01000000", "ntlmssp.unused01000000"),
    ("ntlmssp.negotiatent04000000", "ntlmssp.unused04000000"),
    ("ntlmssp.negotiatent08000000", "ntlmssp.unused08000000"),
    ("ntlmssp.negotiatent10000000", "ntlmssp.unused10000000"),
    ("ntlmssp.negotiatentlm2", "ntlmssp.negotiateextendedsessionsecurity"),
    ("ntlmssp.negotiatentonly", "ntlmssp.unused00000400"),
    ("ntlmssp.requestnonntsession", "ntlmssp.requestnonntsessionkey"),
    ("ntlmssp.targettypeshare", "ntlmssp.unused00040000"),
    ("smb.nt.create_options.eight_dot_three_only", "smb.nt.create_options.file_open_for_recovery"),
    ("smb2.getinfo_flags", "smb2.query_info.flags"),
    ("smb2.getinfo_flags.index_specified", "smb2.query_info.flags.index_specified"),
    ("smb2.getinfo_flags.restart_scan", "smb2.query_info.flags.restart_scan"),
    ("smb2.getinfo_flags.return_single_entry", "smb2.query_info.flags.return_single_entry"),
    ("smb2.ioctl.network_interfaces.rss_queue_count", "smb2.ioctl.network_interfaces.reserved"),
    ("smb2.pid", "smb2.header_reserved"),
    ("smb2.share_caps.assymetric", "smb2.share_caps.asymmetric"),
];

/// True if Wireshark has a protocol or field of this name that is not decoded here.
pub fn has(name: &str) -> bool {
    if has_line(name) {
        return true;
    }
    let Some((protocol, _)) = name.split_once('.') else { return false };
    // of a protocol that is not decoded here, all fields are taken for known
    let mut line = [0; 64];
    let Some(line) = line.get_mut(..protocol.len() + 2) else { return false };
    line[..protocol.len()].copy_from_slice(protocol.as_bytes());
    line[protocol.len()..].copy_from_slice(b".*");
    core::str::from_utf8(line).is_ok_and(has_line)
}

/// The name that a field of an older Wireshark has today.
pub fn today(name: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
}

/// Searches the lines by halves.
fn has_line(wanted: &str) -> bool {
    let (mut from, mut to) = (0, NAMES.len());
    while from < to {
        let middle = from + (to - from) / 2;
        let start = NAMES[from..middle].rfind('\n').map_or(from, |i| from + i + 1);
        let end = NAMES[middle..to].find('\n').map_or(to, |i| middle + i);
        match NAMES[start..end].cmp(wanted) {
            core::cmp::Ordering::Equal => return true,
            core::cmp::Ordering::Less => from = end + 1,
            core::cmp::Ordering::Greater => to = start,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_line_and_no_other() {
        assert!(NAMES.lines().count() > 3000 && NAMES.lines().is_sorted());
        assert!(NAMES.lines().all(has_line));
        assert!(has("http") && has("http.request.method") && has("dns.qry.name"));
        assert!(!has("htttp") && !has("smb2.comd") && !has("") && !has("\n") && !has("a.b"));
    }
}
