//! Whole messages as the Linux client and server sent them, from the RPC-over-RDMA header down to the last field of
//! NFS: the transcript of reading a file of six bytes. The data went into a write chunk.

use rdmascope_dissector::trace::{Off, Tree};
use rdmascope_dissector::wire::nfs::{Io, Op};
use rdmascope_dissector::wire::rpc::{self, Memo, Message};
use rdmascope_dissector::wire::rpcrdma::{MessageKind, RpcRdma, recognize};
use rdmascope_dissector::wire::xdr::Stream;

const V3_READ_CALL: &str = "ad34a6f600000001000000800000000000000000000000010000000100000c0700001000ad34a6f6c3a140000000000000000000ad34a6f60000000000000002\
    000186a300000003000000060000000100000020000000000000000a6c61622d636c69656e740000000000000000000000000000000000000000000000000014\
    010001010100000085667f870400000000000000000000000000000000001000";
const V3_READ_REPLY: &str = "ad34a6f600000001000000400000000000000000000000010000000100000c0700000006ad34a6f6c3a140000000000000000000ad34a6f60000000100000000\
    000000000000000000000000000000000000000100000001000001a4000000010000000000000000000000000000000600000000000010000000000000000000\
    000000000000000100000000000000046b01511d31d45aae6b0151112625a0b26b0151112625a0b2000000060000000100000006";
const V4_READ_CALL: &str = "71726075000000010000008000000000000000000000000100000001000004070000100071726075038620000000000000000000717260750000000000000002\
    000186a300000004000000010000000100000020000000000000000a6c61622d636c69656e740000000000000000000000000000000000000000000000000000\
    000000020000000300000035a050016b4acb03ce010000000000000000000034000000000000000000000000000000160000001401000101010000007a27ac6b\
    04000000000000000000001900000000a050016b4acb03ce0e000000000000000000000000001000";
const V4_READ_REPLY: &str = "71726075000000010000004000000000000000000000000100000001000004070000000671726075038620000000000000000000717260750000000100000000\
    0000000000000000000000000000000000000000000000030000003500000000a050016b4acb03ce010000000000000000000034000000000000001d0000001d\
    00000000000000160000000000000019000000000000000100000006";

/// Number and what is read or written.
type Operations = Vec<(u32, Option<Io>)>;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
}

/// A Send, read to its end, with a tree and without: what it says, the operations in it, and what to remember of a
/// call.
fn read(hex: &str, memo: Option<Memo>) -> (Tree, Operations, Option<Memo>) {
    let message = bytes(hex);
    let mut tree = Tree::new();
    tree.begin(&message);
    let (mut ops, mut silent) = (Vec::new(), Vec::new());
    let (_, header) = RpcRdma::parse(&message, &mut tree).unwrap();
    let (rest, rpc) =
        rpc::dissect(&Stream::inline(&header), memo, &mut tree, &mut |op: &Op<'_>| ops.push((op.code, op.io))).unwrap();
    assert!(rest.is_empty() && tree.faults.is_empty());
    assert_eq!(rpc.xid(), header.fixed.xid);
    rpc::dissect(&Stream::inline(&header), memo, &mut Off, &mut |op: &Op<'_>| silent.push((op.code, op.io))).unwrap();
    assert_eq!(ops, silent);
    covered(&tree, message.len());
    let memo = if let Message::Call(call) = rpc { Some(call.memo) } else { None };
    (tree, ops, memo)
}

/// Every byte of the message lies in a field that is not only a subtree.
fn covered(tree: &Tree, length: usize) {
    let mut seen = vec![false; length];
    for node in tree.nodes.iter().filter(|n| !matches!(n.value, rdmascope_dissector::trace::NodeValue::None)) {
        seen[node.offset as usize..(node.offset + node.len) as usize].fill(true);
    }
    let missing: Vec<_> = (0..length).filter(|n| !seen[*n]).collect();
    assert!(missing.is_empty(), "no field covers {missing:?}");
}

#[test]
fn version_3_reads_a_file() {
    let (tree, ops, memo) = read(V3_READ_CALL, None);
    assert_eq!(recognize(&bytes(V3_READ_CALL)), Some(MessageKind::Call));
    assert_eq!((tree.protocol, tree.info.as_str()), ("NFS", "V3 READ Call, FH: 0x6d17b51a, Offset: 0, Len: 4096"));
    assert_eq!(ops, [(6, Some(Io { count: 4096, ..Io::default() }))]);
    assert_eq!((tree.number("rpcordma.writes_count"), tree.number("rpcordma.rdma_length")), (Some(1), Some(4096)));
    let (tree, ops, _) = read(V3_READ_REPLY, memo);
    assert_eq!(recognize(&bytes(V3_READ_REPLY)), Some(MessageKind::Reply));
    assert_eq!(tree.info, "V3 READ Reply, Len: 6");
    assert_eq!(ops, [(6, Some(Io { count: 6, eof: true, reduced: true, ..Io::default() }))]);
    assert_eq!(
        (tree.number("nfs.fattr3.size"), tree.number("nfs.fattr3.fileid"), tree.number("rpc.procedure")),
        (Some(6), Some(4), Some(6))
    );
    let reduced = *tree.all("rdmascope.reduced").next().unwrap();
    assert_eq!(tree.value_bytes(&reduced), b"Data in write chunk 0, 6 bytes at 0xad34a6f6c3a14000 key 0x00000c07");
    assert!(reduced.generated);
}

#[test]
fn version_4_reads_a_file() {
    let (tree, ops, memo) = read(V4_READ_CALL, None);
    assert_eq!(tree.info, "V4 Call SEQUENCE | PUTFH | READ Offset: 0 Len: 4096");
    assert_eq!(ops.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [53, 22, 25]);
    assert_eq!(memo.map(|m| (m.version, m.minor, m.procedure)), Some((4, 2, 1)));
    let (tree, ops, _) = read(V4_READ_REPLY, memo);
    assert_eq!(tree.info, "V4 Reply SEQUENCE | PUTFH | READ Len: 6");
    assert_eq!(ops[2], (25, Some(Io { count: 6, eof: true, reduced: true, ..Io::default() })));
    assert_eq!((tree.number("nfs.target_high_slotid"), tree.number("nfs.main_opcode")), (Some(29), Some(25)));
    assert_eq!((tree.number("rdmascope.reduced.length"), tree.number("rdmascope.reduced.chunk")), (Some(6), Some(0)));
}

#[test]
fn a_reply_without_its_call_stays_bytes() {
    let (tree, ops, _) = read(V4_READ_REPLY, None);
    assert_eq!((tree.protocol, ops.len(), tree.all("rdmascope.rpc.body").count()), ("RPC", 0, 1));
}
