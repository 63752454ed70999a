//! The capture's own knowledge of a frame, as fields: number, times, lengths, interface, comments. Wireshark's `frame`
//! protocol; the values come from the capture file and not from the frame's bytes, so all of them are computed.

pub use crate::frame_fields::f;
use crate::trace::LabelPart::{Number, Text};
use crate::trace::{Trace, Value};
use core::fmt::Display;

/// Properties of a frame in the capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfo<'a> {
    /// Frame number, from 1.
    pub number: u64,
    /// When it was captured, in ns since the Unix epoch; `None` where the file does not say.
    pub time_ns: Option<i64>,
    /// Time of the first frame, in ns since the Unix epoch.
    pub first_ns: i64,
    /// Time of the frame before, in ns since the Unix epoch; `None` for the first.
    pub previous_ns: Option<i64>,
    /// Length on the wire in bytes.
    pub wire_len: u32,
    /// Index of the interface it was captured on, where the file has several.
    pub interface: Option<u32>,
    /// Name of that interface.
    pub interface_name: Option<&'a str>,
}

/// Nanoseconds as seconds and nanoseconds counted forward.
const fn time(ns: i64) -> Value<'static> {
    Value::Time { seconds: ns.div_euclid(1_000_000_000), nanos: ns.rem_euclid(1_000_000_000) as u32 }
}

/// Tells the observer of the frame, before it is decoded. `frame.protocols` is reported empty: [`Trace::end`], called
/// when decoding is over, fills it in.
pub fn trace<'c, T: Trace, C: Display + 'c>(
    info: &FrameInfo<'_>,
    comments: impl IntoIterator<Item = C>,
    bytes: &[u8],
    t: &mut T,
) {
    if !t.wants(&f::SET) {
        return;
    }
    t.open(f::PROTOCOL, bytes);
    let (number, captured) = (Number(info.number), Number(bytes.len() as u64));
    let on_wire = Number(info.wire_len.into());
    t.label_parts(&[Text(" "), number, Text(": "), on_wire, Text(" bytes on the wire, "), captured, Text(" captured")]);
    if let Some(interface) = info.interface {
        t.field(f::INTERFACE_ID, bytes, 0, Value::U(u64::from(interface)));
    }
    if let Some(name) = info.interface_name {
        t.field(f::INTERFACE_NAME, bytes, 0, Value::Str(name));
    }
    if let Some(ns) = info.time_ns {
        for def in [f::TIME, f::TIME_UTC, f::TIME_EPOCH] {
            if t.keeps(def) {
                t.field(def, bytes, 0, time(ns));
            }
        }
        if let (Some(previous), true) = (info.previous_ns, t.keeps(f::TIME_DELTA)) {
            t.field(f::TIME_DELTA, bytes, 0, time(ns.saturating_sub(previous)));
        }
        if t.keeps(f::TIME_RELATIVE) {
            t.field(f::TIME_RELATIVE, bytes, 0, time(ns.saturating_sub(info.first_ns)));
        }
    }
    t.field(f::NUMBER, bytes, 0, Value::U(info.number));
    t.field(f::LEN, bytes, 0, Value::U(u64::from(info.wire_len)));
    t.field(f::CAP_LEN, bytes, 0, Value::U(bytes.len() as u64));
    t.field(f::PROTOCOLS, bytes, 0, Value::Str(""));
    for comment in comments {
        t.field(f::COMMENT, bytes, 0, Value::Text(format_args!("{comment}")));
    }
    t.close(&bytes[bytes.len()..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Style, show};
    use crate::trace::Tree;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn tells_what_the_capture_knows() {
        let bytes = [1, 2, 3];
        let mut tree = Tree::new();
        tree.begin(&bytes);
        let info = FrameInfo {
            number: 7,
            time_ns: Some(1_500_000_000),
            first_ns: 1_000_000_000,
            previous_ns: Some(2_000_000_000),
            wire_len: 60,
            interface: Some(1),
            interface_name: None,
        };
        trace(&info, ["a comment"], &bytes, &mut tree);
        crate::trace::scope(crate::wire::smbd::f::PROTOCOL, &bytes[..], &mut tree, |i, _| Ok((&i[3..], ()))).unwrap();
        tree.end();
        let text = |name: &str| {
            let node = tree.all(name).next().unwrap();
            show(node.def, tree.stored(node), Style::Fields)
        };
        let names =
            ["frame.number", "frame.time_relative", "frame.time_delta", "frame.len", "frame.cap_len", "frame.comment"];
        let values: Vec<String> = names.iter().map(|n| text(n)).collect();
        assert_eq!(values, ["7", "0.500000000", "-0.500000000", "60", "3", "a comment"]);
        assert_eq!(text("frame.protocols"), "smb_direct");
        assert_eq!((tree.nodes[0].def.name, tree.nodes[0].offset, tree.nodes[0].len), ("frame", 0, 3));
        assert!(tree.nodes[0].depth == 0 && tree.nodes[1].depth == 1);
    }
}
