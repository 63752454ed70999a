//! Every field of a frame, from its bytes: `cargo run --example fields`. The frame is a CNP of RoCEv2.

use rdmascope_dissector::frame::{LinkType, Options, decode};
use rdmascope_dissector::render::label;
use rdmascope_dissector::trace::Tree;

/// Ethernet, IPv4, UDP to port 4791, BTH, 16 reserved bytes, ICRC.
const FRAME: &[u8] = &[
    0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
    0x45, 0x02, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, // IPv4
    0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0, // UDP
    0x81, 0x00, 0xff, 0xff, 0x40, 0, 0, 0x12, 0, 0, 0, 0, // BTH: opcode CNP, queue pair 0x12
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
    0, 0, 0, 0, // ICRC
];

fn main() {
    let mut tree = Tree::new();
    tree.begin(FRAME);
    let length = u32::try_from(FRAME.len()).unwrap_or(u32::MAX);
    let packet = decode(LinkType::ETHERNET, FRAME, length, &Options::default(), &mut tree);
    for (at, node) in tree.nodes.iter().enumerate() {
        let mut text = String::new();
        label(&mut text, &tree, at);
        println!("{:indent$}{text}", "", indent = 2 * usize::from(node.depth));
    }
    assert!(packet.fault.is_none(), "{:?}", packet.fault);
    assert_eq!(tree.number("infiniband.bth.destqp"), Some(0x12));
}
