//! Identifies files that are not a capture we can read, by their first bytes.

use crate::error::Problem;

/// Identifies a file that begins with `bytes` and is not a capture.
#[cold]
pub(crate) fn not_capture(bytes: &[u8]) -> Problem {
    /// Formats that are often given by mistake, each with advice.
    const KNOWN: [(&[u8], &str); 7] = [
        (b"\xfd7zXZ\0", "xz-compressed; decompress it with xz -d"),
        (b"BZh", "bzip2-compressed; decompress it with bzip2 -d"),
        (b"PK\x03\x04", "a zip archive; unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
        (b"\x7fELF", "a program"),
        (b"%PDF-", "a PDF document"),
        (b"\0\0\0\0", "begins with zeros, like a file that was never written to"),
    ];
    /// Capture formats that are not supported, by their first bytes.
    const UNREAD: [(&[u8], &str); 17] = [
        (b"+---------+---------------+----------+", "a K12 text"),
        (b"\xaa\xaa\xaa\xaa", "an InfoVista 5View"),
        (b"\x01\x10\x4c\0\x01\x05", "a Novell LANalyzer"),
        (b"\x01\x10\x4e\0\x01\x05", "a Novell LANalyzer"),
        (b"TRSNIFF data    \x1a", "a Sniffer (DOS)"),
        (b"XCP\0", "a NetXray or Sniffer (Windows)"),
        (b"VL\0\0", "a NetXray"),
        (b"ObserverPktBufferVersion", "a Viavi Observer"),
        (b"\x05VNF", "a Visual Networks"),
        (b"TR\0d\0", "an HP-UX nettl"),
        (b"\x7fver\0\0\0", "an OmniPeek"),
        (b"iptrace ", "an AIX iptrace"),
        (b"btsnoop\0", "a Bluetooth (btsnoop)"),
        (b"EyeSDN", "an EyeSDN"),
        (b"\x1c\0\x01\xac", "an Ixia"),
        (b"\xac\x01\0\x1c", "an Ixia"),
        (b"\xab\x01\0\x1c", "an Ixia"),
    ];
    if bytes.is_empty() {
        return Problem::Empty;
    }
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Problem::NotCapture((*what).to_owned());
    }
    let unread = UNREAD.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, what)| *what);
    if let Some(what) = unread.or_else(|| is_commview(bytes).then_some("a TamoSoft CommView")) {
        return Problem::Unsupported(format!("{what} capture; convert it with editcap -F pcapng"));
    }
    let head = &bytes[..bytes.len().min(24)];
    let printable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    if head.iter().all(printable) {
        return Problem::NotCapture(format!("begins with the text \"{}\"", head.escape_ascii()));
    }
    let hex: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Problem::NotCapture(format!("begins with the bytes {}", hex.join(" ")))
}

/// True if a file begins like one of CommView, which has no magic: lengths, then a date (NCF), or a length and a date
/// (NCFX).
fn is_commview(bytes: &[u8]) -> bool {
    let half = |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    let is_time = |at: usize| {
        let Some([month, day, hour, minute, second]) = bytes.get(at + 2..).and_then(|b| b.first_chunk()) else {
            return false;
        };
        (1990..2100).contains(&half(at))
            && (1..=12).contains(month)
            && (1..=31).contains(day)
            && *hour < 24
            && *minute < 60
            && *second < 61
    };
    let is_ncf = half(0) == half(2) && half(0) >= 14 && bytes.get(4) == Some(&0) && is_time(5);
    is_ncf || (half(0) >= 14 && half(2) == 0 && is_time(4))
}
