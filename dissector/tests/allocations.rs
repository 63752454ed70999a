//! Peeling and decoding without an observer allocate nothing. A test binary of its own, since it counts every
//! allocation of the process.

mod counting;

use counting::allocations;
use rdmascope_dissector::frame::{self, Body, LinkType, Options};
use rdmascope_dissector::trace::{Off, Tree};
use rdmascope_dissector::wire::ib::cm;
use rdmascope_dissector::wire::nfs::Op;
use rdmascope_dissector::wire::rpc::{self, Message};
use rdmascope_dissector::wire::rpcrdma::RpcRdma;
use rdmascope_dissector::wire::xdr::Stream;

fn frames() -> Vec<(LinkType, Vec<u8>)> {
    let mut ib = vec![0x64, 0, 0xff, 0xff, 0, 0, 0, 1, 0x80, 0, 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 1];
    let mut mad = vec![1, 7, 2, 3];
    mad.resize(256, 0);
    mad[17] = 0x10;
    ib.extend_from_slice(&mad);
    ib.extend_from_slice(&[0; 4]);
    let mut roce = Vec::new();
    let builder = || etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    builder().udp(49152, 4791).write(&mut roce, &ib).unwrap();
    let mut tunnel = Vec::new();
    let inside = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &roce].concat();
    builder().udp(49152, 4789).write(&mut tunnel, &inside).unwrap();
    let mut tcp = Vec::new();
    let options = [etherparse::TcpOptionElement::Timestamp(1, 2)];
    builder().tcp(1, 2, 3, 4).options(&options).unwrap().write(&mut tcp, b"payload").unwrap();
    let native = [&[0x20, 0x12, 0, 7, 0, 71, 0, 9][..], &ib].concat();
    let mut all = vec![
        (LinkType::ETHERNET, roce),
        (LinkType::ETHERNET, tunnel),
        (LinkType::ETHERNET, tcp),
        (LinkType::INFINIBAND, native),
    ];
    // and what is cut, which ends in faults
    for n in 0..4 {
        let (link, mut bytes) = all[n].clone();
        bytes.truncate(bytes.len() / 4);
        all.push((link, bytes));
    }
    all
}

#[test]
fn peeling_allocates_nothing() {
    let frames = frames();
    let run = |tree: Option<&mut Tree>| {
        let before = allocations();
        let mut found = 0;
        match tree {
            None => {
                for (link, bytes) in &frames {
                    let packet = frame::decode(*link, bytes, 400, &Options::default(), &mut Off);
                    if let Body::Ib(ib) = packet.body {
                        found += usize::from(cm::parse_mad(ib.payload, &mut Off).is_ok());
                    }
                }
            }
            Some(tree) => {
                for (link, bytes) in &frames {
                    tree.begin(bytes);
                    frame::decode(*link, bytes, 400, &Options::default(), tree);
                }
            }
        }
        (found, allocations() - before)
    };
    assert_eq!(run(None), (3, 0));
    let mut tree = Tree::new();
    assert!(run(Some(&mut tree)).1 > 0, "the counter counts");
    assert_eq!(run(Some(&mut tree)).1, 0, "a tree that is used again stops allocating");
}

/// A READ of NFS 4.2 and its reply, whose data is in a write chunk.
const NFS: [&str; 2] = [
    "71726075000000010000008000000000000000000000000100000001000004070000100071726075038620000000000000000000717260750000000000000002000186a300000004000000010000000100000020000000000000000a6c61622d636c69656e740000000000000000000000000000000000000000000000000000000000020000000300000035a050016b4acb03ce010000000000000000000034000000000000000000000000000000160000001401000101010000007a27ac6b04000000000000000000001900000000a050016b4acb03ce0e000000000000000000000000001000",
    "717260750000000100000040000000000000000000000001000000010000040700000006717260750386200000000000000000007172607500000001000000000000000000000000000000000000000000000000000000030000003500000000a050016b4acb03ce010000000000000000000034000000000000001d0000001d00000000000000160000000000000019000000000000000100000006",
];

#[test]
fn decoding_nfs_allocates_nothing() {
    let messages = NFS.map(|hex| {
        (0..hex.len()).step_by(2).map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect::<Vec<u8>>()
    });
    let before = allocations();
    let (mut memo, mut operations, mut faults) = (None, 0, 0);
    for message in &messages {
        for length in (1..=message.len()).rev() {
            let Ok((_, header)) = RpcRdma::parse(&message[..length], &mut Off) else {
                faults += 1;
                continue;
            };
            let result = rpc::dissect(&Stream::inline(&header), memo, &mut Off, &mut |_: &Op<'_>| operations += 1);
            if let Ok((_, Message::Call(call))) = result {
                memo = Some(call.memo);
            }
        }
    }
    assert!(operations > 6 && faults > 100);
    assert_eq!(allocations() - before, 0);
}
