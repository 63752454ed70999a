//! `-z follow,KIND,FORM,NUMBER[,FROM-TO]`: the content of both sides of a stream, in order, reassembled from its
//! segments. Kinds: `tcp`, by `tcp.stream`; `smb_direct`, by `rdmascope.connection`, which has the SMB2 messages
//! without the layers below. The output has tshark's format.

use crate::dissection::Dissected;
use anyhow::{Context, Result, bail};
use rdmascope_dissector::extract::{Extractor, Need, Slot};
use rdmascope_dissector::field::Def;
use rdmascope_dissector::registry::Registry;
use rdmascope_dissector::render::{Stored, Style, hex_bytes, show};
use rdmascope_dissector::text::escaped;
use std::collections::BTreeMap;
use std::io::Write;

/// Maximum number of bytes kept of one stream. The rest is left out, and the output says how many bytes that is.
const BYTES_MAX: usize = 64 << 20;
/// Maximum number of bytes that wait for earlier ones; beyond it, the earlier ones count as missing.
const WAITING_MAX: usize = 4 << 20;

/// Format in which bytes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Ascii,
    Hex,
    Raw,
}

/// Content of one stream, as `-z follow` shows it.
pub struct Follow {
    kind: &'static str,
    form: Form,
    number: u64,
    /// Pieces that are shown, from 1.
    range: (usize, usize),
    stream: Slot,
    seq: Option<Slot>,
    data: Slot,
    addresses: [Slot; 4],
    ports: Option<[Slot; 2]>,
    nodes: [Option<String>; 2],
    sides: [Side; 2],
    pieces: Vec<(usize, Piece)>,
    bytes: usize,
    left_out: u64,
}

enum Piece {
    Bytes(Vec<u8>),
    Missing(u64),
}

#[derive(Default)]
struct Side {
    next: Option<u32>,
    waiting: BTreeMap<u32, Vec<u8>>,
    held: usize,
}

const LINE: &str = "===================================================================";

impl Follow {
    /// Parses the argument after `follow,` and makes `extractor` extract the fields it needs.
    pub fn new(argument: &str, registry: &Registry, extractor: &mut Extractor) -> Result<Self> {
        let parts: Vec<&str> = argument.split(',').collect();
        let [kind, form, number, rest @ ..] = parts.as_slice() else {
            bail!("-z follow needs KIND,FORM,NUMBER, as in follow,tcp,ascii,0");
        };
        let kind = match *kind {
            "tcp" => "tcp",
            "smb_direct" => "smb_direct",
            other => bail!("-z follow supports tcp and smb_direct, not \"{}\"", escaped(other)),
        };
        let form = match *form {
            "ascii" => Form::Ascii,
            "hex" => Form::Hex,
            "raw" => Form::Raw,
            other => bail!("-z follow writes ascii, hex or raw, not \"{}\"", escaped(other)),
        };
        let what = if kind == "tcp" { "tcp.stream" } else { "rdmascope.connection" };
        let number = number
            .parse()
            .ok()
            .with_context(|| format!("-z follow needs the number of a {what}, not \"{}\"", escaped(number)))?;
        let range = match rest {
            [] => (1, usize::MAX),
            [range] => {
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                let both = from
                    .parse()
                    .ok()
                    .zip(to.parse().ok())
                    .filter(|(from, to): &(usize, usize)| *from > 0 && from <= to);
                both.with_context(|| format!("-z follow needs pieces FROM-TO, not \"{}\"", escaped(range)))?
            }
            _ => bail!("-z follow ends with pieces FROM-TO"),
        };
        let want = |name: &str, extractor: &mut Extractor| -> Slot {
            let def: Def = registry.find(name).expect("a field of ours");
            extractor.want(def, Need::Value)
        };
        let is_tcp = kind == "tcp";
        Ok(Self {
            kind,
            form,
            number,
            range,
            stream: want(what, extractor),
            seq: is_tcp.then(|| want("tcp.seq", extractor)),
            data: want(if is_tcp { "tcp.payload" } else { "rdmascope.smb_direct.data_message.data" }, extractor),
            addresses: ["ip.src", "ipv6.src", "ip.dst", "ipv6.dst"].map(|name| want(name, extractor)),
            ports: is_tcp.then(|| ["tcp.srcport", "tcp.dstport"].map(|name| want(name, extractor))),
            nodes: [None, None],
            sides: <[Side; 2]>::default(),
            pieces: Vec::new(),
            bytes: 0,
            left_out: 0,
        })
    }

    /// Takes in a frame.
    pub fn frame(&mut self, _: &Dissected, extractor: &Extractor) {
        let number = |slot: Slot| {
            extractor.values(slot).find_map(|(_, v)| match v {
                Stored::U(n) => Some(n),
                _ => None,
            })
        };
        if number(self.stream) != Some(self.number) {
            return;
        }
        let text = |slot: Slot| extractor.values(slot).next().map(|(def, v)| show(def, v, Style::Fields));
        let end = |side: usize| {
            let address =
                text(self.addresses[2 * side]).or_else(|| text(self.addresses[2 * side + 1])).unwrap_or_default();
            match self.ports.map(|ports| text(ports[side]).unwrap_or_default()) {
                Some(port) => format!("{address}:{port}"),
                None => address,
            }
        };
        let data: Vec<Vec<u8>> = extractor
            .values(self.data)
            .filter_map(|(_, v)| match v {
                Stored::Bytes(bytes) if !bytes.is_empty() => Some(bytes.to_vec()),
                _ => None,
            })
            .collect();
        // without visible sequence numbers, the side that sends data first; with TCP, the side that sends first
        if data.is_empty() && self.seq.is_none() {
            return;
        }
        let (from, to) = (end(0), end(1));
        if self.nodes[0].is_none() {
            self.nodes = [Some(from.clone()), Some(to)];
        }
        let side = usize::from(self.nodes[0].as_ref() != Some(&from));
        match self.seq {
            None => data.into_iter().for_each(|bytes| self.piece(side, bytes)),
            Some(slot) => {
                if let (Some(seq), Some(bytes)) = (number(slot), data.into_iter().next()) {
                    self.segment(side, seq as u32, bytes);
                }
            }
        }
    }

    fn piece(&mut self, side: usize, bytes: Vec<u8>) {
        if self.bytes + bytes.len() > BYTES_MAX {
            self.left_out += bytes.len() as u64;
            return;
        }
        self.bytes += bytes.len();
        self.pieces.push((side, Piece::Bytes(bytes)));
    }

    fn segment(&mut self, side: usize, seq: u32, bytes: Vec<u8>) {
        let next = *self.sides[side].next.get_or_insert(seq);
        if (seq.wrapping_sub(next) as i32) > 0 {
            let me = &mut self.sides[side];
            me.held += bytes.len();
            if let Some(before) = me.waiting.insert(seq, bytes) {
                me.held -= before.len();
            }
            while self.sides[side].held > WAITING_MAX {
                self.give_up(side);
            }
            return;
        }
        self.in_order(side, next, seq, bytes);
        self.waited(side);
    }

    /// Appends bytes that begin at or before the end of the former ones.
    fn in_order(&mut self, side: usize, next: u32, seq: u32, mut bytes: Vec<u8>) {
        let known = next.wrapping_sub(seq) as usize;
        if known >= bytes.len() {
            return;
        }
        bytes.drain(..known);
        self.sides[side].next = Some(next.wrapping_add(bytes.len() as u32));
        self.piece(side, bytes);
    }

    /// Appends the segments that were waiting for the bytes that came now.
    fn waited(&mut self, side: usize) {
        loop {
            let me = &mut self.sides[side];
            let Some(next) = me.next else { return };
            let Some(seq) = me.waiting.keys().copied().find(|seq| (seq.wrapping_sub(next) as i32) <= 0) else { return };
            let bytes = me.waiting.remove(&seq).unwrap_or_default();
            me.held -= bytes.len();
            self.in_order(side, next, seq, bytes);
        }
    }

    /// The bytes before those that wait are missing.
    fn give_up(&mut self, side: usize) {
        let me = &mut self.sides[side];
        let Some(next) = me.next else { return };
        let Some(seq) = me.waiting.keys().copied().min_by_key(|seq| seq.wrapping_sub(next)) else { return };
        me.next = Some(seq);
        self.pieces.push((side, Piece::Missing(u64::from(seq.wrapping_sub(next)))));
        self.waited(side);
    }

    /// Writes the stream.
    pub fn end(&mut self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for side in 0..2 {
            while !self.sides[side].waiting.is_empty() {
                self.give_up(side);
            }
        }
        let form = match self.form {
            Form::Ascii => "ascii",
            Form::Hex => "hex",
            Form::Raw => "raw",
        };
        let what = if self.kind == "tcp" { "tcp.stream" } else { "rdmascope.connection" };
        writeln!(out, "\n{LINE}\nFollow: {},{form}\nFilter: {what} eq {}", self.kind, self.number)?;
        for (n, node) in self.nodes.iter().enumerate() {
            writeln!(out, "Node {n}: {}", node.as_deref().unwrap_or(":0"))?;
        }
        let mut offsets = [0; 2];
        for (n, (side, piece)) in self.pieces.iter().enumerate() {
            let shown = (self.range.0..=self.range.1).contains(&(n + 1));
            let tab = if *side == 1 { "\t" } else { "" };
            match piece {
                Piece::Missing(bytes) if shown => writeln!(out, "{tab}[{bytes} bytes missing in capture file]")?,
                Piece::Bytes(bytes) if shown => match self.form {
                    Form::Ascii => {
                        writeln!(out, "{tab}{}", bytes.len())?;
                        out.extend(
                            bytes.iter().map(|b| if matches!(b, b' '..=b'~' | b'\n' | b'\t') { *b } else { b'.' }),
                        );
                        out.push(b'\n');
                    }
                    Form::Hex => lines(out, tab, offsets[*side], bytes)?,
                    Form::Raw => {
                        out.extend_from_slice(tab.as_bytes());
                        hex_bytes(out, bytes, None);
                        out.push(b'\n');
                    }
                },
                _ => {}
            }
            if let Piece::Bytes(bytes) = piece {
                offsets[*side] += bytes.len();
            }
        }
        if self.left_out > 0 {
            writeln!(out, "{} more bytes are left out", self.left_out)?;
        }
        writeln!(out, "{LINE}")
    }
}

/// Writes sixteen bytes per line, with their offset in the data of this side.
fn lines(out: &mut Vec<u8>, tab: &str, offset: usize, bytes: &[u8]) -> std::io::Result<()> {
    for (n, line) in bytes.chunks(16).enumerate() {
        write!(out, "{tab}{:08X} ", offset + 16 * n)?;
        for i in 0..16 {
            if i % 8 == 0 {
                out.push(b' ');
            }
            match line.get(i) {
                Some(b) => write!(out, "{b:02x} ")?,
                None => write!(out, "   ")?,
            }
        }
        out.push(b' ');
        for (i, b) in line.iter().enumerate() {
            if i == 8 {
                out.push(b' ');
            }
            out.push(if matches!(b, b' '..=b'~') { *b } else { b'.' });
        }
        out.push(b'\n');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(form: &str) -> Follow {
        let registry = crate::fields::registry();
        Follow::new(&format!("tcp,{form},0"), &registry, &mut Extractor::new()).unwrap()
    }

    fn shown(follow: &mut Follow) -> String {
        let mut out = Vec::new();
        follow.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn segments_are_put_in_order_once_and_holes_are_reported() {
        let mut f = follow("ascii");
        f.segment(0, 1, b"abc".to_vec());
        f.segment(0, 7, b"ghi".to_vec());
        f.segment(0, 2, b"bcdef".to_vec());
        f.segment(1, 1, b"\x1b[31m".to_vec());
        f.segment(0, 4, b"def".to_vec());
        f.segment(0, 20, b"z".to_vec());
        let text = shown(&mut f);
        assert!(
            text.contains("\n3\nabc\n3\ndef\n3\nghi\n\t5\n.[31m\n[10 bytes missing in capture file]\n1\nz\n"),
            "{text}"
        );
    }

    #[test]
    fn numbers_go_on_behind_their_highest_and_memory_has_a_bound() {
        let mut f = follow("raw");
        f.segment(0, u32::MAX, vec![1, 2]);
        f.segment(0, 1, vec![3]);
        assert!(shown(&mut f).contains("\n0102\n03\n"));
        let mut f = follow("raw");
        f.segment(0, 0, vec![0]);
        for n in 1..200 {
            f.segment(0, n * 100_000, vec![0; 65_536]);
        }
        assert!(f.sides[0].held <= WAITING_MAX && f.bytes <= BYTES_MAX);
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        let registry = crate::fields::registry();
        for wrong in [
            "tcp",
            "tcp,ascii",
            "udp,ascii,0",
            "tcp,yaml,0",
            "tcp,ascii,x",
            "tcp,ascii,0,3-1",
            "tcp,ascii,0,0-1",
            "tcp,raw,0,1-2,3",
        ] {
            assert!(Follow::new(wrong, &registry, &mut Extractor::new()).is_err(), "{wrong}");
        }
    }
}
