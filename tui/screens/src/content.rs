//! Messages of a connection: its SMB2 and RPC messages, one after another, with their bytes. Wireshark calls this
//! "follow stream".
//!
//! ```text
//! ▸ frame 21   0.013 s   Create Request, "big.bin"   152 bytes
//!   0000  fe 53 4d 42 40 00 01 00  00 00 00 00 05 00 20 00  .SMB@......... .
//! ◂ frame 23   0.014 s   …
//! ```
//! Data moved by RDMA is not a message; it is shown with its request (key `W`).

use super::redissect::{GIVEN_UP, Redissector, Which, address};
use super::time::{grouped, seconds};
use rdmascope_dissector::render::escaped;
use rdmascope_dissector::trace::Tree;
use std::fmt::Write as _;

/// Maximum number of bytes that are shown.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// Bytes in a line.
const LINE: usize = 16;
/// Protocols whose messages are shown.
const MESSAGES: [&str; 2] = ["smb2", "rpc"];

/// The messages of the connection that is followed under these numbers; `client` is the client's address.
pub(crate) fn content(
    redissector: &mut Redissector,
    ids: &[u32],
    client: &str,
    bytes_max: usize,
    progress: &mut dyn FnMut(usize, usize) -> bool,
) -> Result<Vec<String>, String> {
    let index = redissector.index();
    let frames: Vec<u32> = index.from(0).filter(|(_, e)| ids.contains(&e.connection)).map(|(i, _)| i as u32).collect();
    let first = index.at(0).map_or(0, |e| e.time);
    let (mut lines, mut shown, mut messages, mut left, mut looked) = (Vec::new(), 0, 0_u64, 0_u64, 0);
    let (mut goes_on, all) = (true, frames.len());
    redissector.trees(&Which::These(frames), ids, &mut |tree, i, fed| {
        let toward_server = fed.as_ref().is_ok_and(|(src, ..)| address(src) == client);
        let time = index.at(i).map_or(0, |e| e.time.saturating_sub(first));
        for bytes in messages_of(tree) {
            messages += 1;
            if shown + bytes.len() > bytes_max {
                left += 1;
                continue;
            }
            shown += bytes.len();
            let arrow = if toward_server { '▸' } else { '◂' };
            let length =
                if bytes.len() == 1 { "1 byte".to_owned() } else { format!("{} bytes", grouped(bytes.len() as u64)) };
            lines.push(format!("{arrow} frame {}   {}   {}   {length}", i + 1, seconds(time), escaped(&tree.info)));
            dump(bytes, &mut lines);
        }
        looked += 1;
        goes_on = looked % 256 != 0 || progress(looked, all);
        goes_on
    });
    if !goes_on {
        return Err(GIVEN_UP.to_owned());
    }
    if left > 0 {
        lines.push(format!(
            "{} of {} messages are not shown: rdmascope dissect -z follow has all",
            grouped(left),
            grouped(messages)
        ));
    }
    Ok(lines)
}

/// The outermost messages of a frame: those of a compound each by itself.
fn messages_of(tree: &Tree) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut inside: Option<u8> = None;
    for node in &tree.nodes {
        if inside.is_some_and(|depth| node.depth > depth) {
            continue;
        }
        inside = MESSAGES.contains(&node.def.name).then_some(node.depth);
        if inside.is_some() && node.len > 0 {
            found.push(tree.covered(node));
        }
    }
    found
}

fn dump(bytes: &[u8], lines: &mut Vec<String>) {
    for (n, row) in bytes.chunks(LINE).enumerate() {
        let mut line = format!("  {:04x} ", n * LINE);
        for at in 0..LINE {
            if at % 8 == 0 {
                line.push(' ');
            }
            match row.get(at) {
                Some(byte) => drop(write!(line, "{byte:02x} ")),
                None => line.push_str("   "),
            }
        }
        line.push(' ');
        line.extend(row.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '.' }));
        lines.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stand_in_lines_of_sixteen() {
        let mut lines = Vec::new();
        dump(b"\xfeSMB@\0\x1b[31m and more", &mut lines);
        assert_eq!(
            lines,
            [
                "  0000  fe 53 4d 42 40 00 1b 5b  33 31 6d 20 61 6e 64 20  .SMB@..[31m and ",
                &format!("  0010  6d 6f 72 65 {}  more", " ".repeat(36))
            ]
        );
    }
}
