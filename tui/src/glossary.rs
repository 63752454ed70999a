//! Terms that reports and screens use, each explained in a sentence or two: `rdmascope explain TERM`, and
//! `docs/glossary.md`.

use rdmascope_report::report::words::wrap;

/// A term.
pub(crate) struct Term {
    /// As it is written in reports.
    pub(crate) name: &'static str,
    /// Other names that people type.
    pub(crate) also: &'static [&'static str],
    /// Whole sentences.
    pub(crate) text: &'static str,
    /// Specification that defines the term; empty for our own terms.
    pub(crate) spec: &'static str,
}

const fn term(name: &'static str, also: &'static [&'static str], spec: &'static str, text: &'static str) -> Term {
    Term { name, also, text, spec }
}

#[rustfmt::skip]
/// All terms, in alphabetical order.
pub(crate) const TERMS: &[Term] = &[
    term("ACK", &["acknowledgement"], "IBTA Vol 1 9.7.5",
        "Says that packets up to a PSN arrived. One ACK may cover many packets."),
    term("buffer descriptor", &["descriptor", "buffer descriptor v1"], "[MS-SMBD] 2.2.3.1",
        "Offset, token (remote key) and length of memory that one side registered, so that the other may reach it by \
            RDMA."),
    term("certainty", &[], "",
        "How sure a finding is: certain; likely, which assumes that the capture is complete; or a guess, from the \
            shape of the traffic."),
    term("channel", &["multichannel"], "[MS-SMB2] 3.2.4.20.7",
        "One of several connections of an SMB session. With multichannel, requests of one session travel on all of them."),
    term("chunk", &["read chunk", "write chunk", "reply chunk"], "RFC 8166 3.4",
        "Memory that an RPC-over-RDMA header describes, so that a large argument or result moves by RDMA and not \
            inside the message. Read \
        chunks carry arguments, Write chunks results, a Reply chunk a whole reply."),
    term("class", &["traffic class", "priority", "PCP", "DSCP", "service level"], "IEEE 802.1Q 6.9; RFC 2474",
        "The queue of a switch port, one of eight, that a packet uses: chosen by the priority of its VLAN tag (PCP), \
            or by its DSCP. \
        Priority flow control pauses one class at a time. Native InfiniBand has service levels and virtual lanes \
        instead."),
    term("CM", &["connection manager", "REQ", "REP", "RTU", "REJ", "DREQ"], "IBTA Vol 1 12",
        "Sets up and ends connections of InfiniBand and RoCE: REQ, REP and RTU connect, REJ refuses, DREQ and DREP \
            disconnect."),
    term("CNP", &["congestion notification", "ECN"], "IBTA annex A17",
        "Congestion Notification Packet. A receiver sends it when packets arrive with a congestion mark of a switch \
            (ECN); the sender \
        slows down."),
    term("compound", &[], "[MS-SMB2] 3.2.4.1.4",
        "Several SMB2 requests in one message, often CREATE, QUERY_INFO and CLOSE."),
    term("CreditCharge", &["charge"], "[MS-SMB2] 3.1.5.2",
        "How many SMB2 credits a request costs: one for each 64 KiB that it sends or asks for, at least one."),
    term("credits (SMB Direct)", &["credit", "credits", "send credit"], "[MS-SMBD] 3.1.1.1",
        "Permission to send SMB Direct messages, one credit a message. A side grants as many as it has receive buffers \
            posted. \
         A sender that has none must wait; the wait is called a stall."),
    term("credits (SMB2)", &["smb2 credit", "smb2 credits", "message credits"], "[MS-SMB2] 3.3.1.2",
        "Permission to use message ids. Each request costs its CreditCharge, and each reply grants new ones. They are \
            not the credits of \
        SMB Direct."),
    term("DDP", &["direct data placement"], "RFC 5041",
        "The iWARP layer that says where each segment belongs: in tagged memory (STag and offset), or in a queue \
            (number, message, offset)."),
    term("DDP-eligible", &["ddp eligibility"], "RFC 8267 4, 6.1",
        "An argument or result of NFS that may move through a chunk: the data of READ and WRITE, link texts, and few \
            others."),
    term("dialect", &[], "[MS-SMB2] 1.7",
        "The version of SMB2 that both sides agreed on: 2.0.2, 2.1, 3.0, 3.0.2 or 3.1.1. SMB Direct needs 3.0 or newer."),
    term("exchange", &["request"], "",
        "One request with everything that it caused: the memory that it described, the RDMA reads and writes, and the \
            reply."),
    term("finding", &["rule"], "",
        "A problem found in a capture: the broken rule, the side at fault, the frames, and the certainty. rdmascope \
            explain lists all \
        rules."),
    term("FPDU", &["framed pdu"], "RFC 5044 4",
        "One message of MPA: a length, a DDP segment, padding, and a CRC."),
    term("fragment (SMB Direct)", &["fragment", "remainingdatalength"], "[MS-SMBD] 2.2.3",
        "Part of an SMB2 message that is larger than one SMB Direct message. RemainingDataLength says how many bytes \
            follow."),
    term("go-back-N", &["go back n"], "IBTA Vol 1 9.7.7",
        "How RoCE and InfiniBand repair a loss: the sender repeats the lost packet and every packet behind it, even \
            those that had \
        arrived."),
    term("ICRC", &["invariant crc"], "IBTA Vol 1 7.8.1",
        "Checksum at the end of each InfiniBand and RoCE packet, over everything that switches do not change. A \
            receiver drops packets \
        with a wrong one."),
    term("inline threshold", &["inline"], "RFC 8166 3.3.2",
        "The largest RPC-over-RDMA message that a side accepts by Send: 1024 bytes unless the connection agreed on more."),
    term("IRD and ORD", &["ird", "ord", "read depth"], "RFC 6581",
        "How many RDMA Reads a side accepts at a time (IRD), and how many it has outstanding (ORD). Both ends agree on \
            them when they \
        connect."),
    term("iWARP", &[], "RFC 5040",
        "RDMA over TCP: MPA, DDP and RDMAP, one on top of the other."),
    term("keepalive", &["idle timer"], "[MS-SMBD] 3.1.6.2",
        "An SMB Direct message that asks an idle peer to respond. A peer that does not answer is disconnected."),
    term("MaxFragmentedSize", &["max_fragmented_size"], "[MS-SMBD] 2.2.2",
        "The largest message that a side reassembles from fragments. At least 131,072 bytes."),
    term("MaxReceiveSize", &["max_receive_size"], "[MS-SMBD] 2.2.2",
        "The largest SMB Direct message that a side receives. At least 128 bytes."),
    term("MPA", &["marker", "mpa marker"], "RFC 5044",
        "Puts message boundaries into a TCP stream. Markers, if they were agreed on, stand in the stream every 512 \
            bytes."),
    term("MSN", &["message sequence number"], "RFC 5041 5.3",
        "Number of a message in a queue of DDP; also a count of finished messages in InfiniBand's acknowledgements."),
    term("NAK", &["negative acknowledgement", "rnr", "rnr nak"], "IBTA Vol 1 9.7.5.2.8",
        "Says that a packet was refused: out of sequence (PSN), an access that is not allowed (remote access error), \
            or an invalid \
        request. RNR NAK says that no receive was posted, and when to try again."),
    term("NTSTATUS", &["status"], "[MS-ERREF] 2.3",
        "The outcome of an SMB2 request: 0 for success, 0xc0000022 for STATUS_ACCESS_DENIED, and so on."),
    term("PFC", &["pause", "priority flow control"], "IEEE 802.1Q 36",
        "Priority Flow Control: a switch or card asks its neighbour to stop sending for a moment, one traffic class at \
            a time, so that \
        nothing is dropped."),
    term("PSN", &["packet sequence number"], "IBTA Vol 1 9.2",
        "Number of a packet in one direction of a queue pair, 24 bits."),
    term("QP", &["queue pair"], "IBTA Vol 1 10.2.4",
        "Queue Pair: one end of an InfiniBand or RoCE connection, by its number. QP 0x12↔0x11 is a connection."),
    term("RDMA Read", &["read response", "rdma read request"], "IBTA Vol 1 9.4.4",
        "The initiator fetches bytes from memory of the other side. Servers fetch the data of a WRITE this way."),
    term("RDMA Write", &[], "IBTA Vol 1 9.4.3",
        "The initiator puts bytes into memory of the other side. Servers deliver the data of a READ this way."),
    term("remote invalidation", &["invalidate", "send with invalidate"], "[MS-SMBD] 3.1.4.2",
        "The reply (Send with Invalidate) invalidates the remote key of its request, so that the requester need not do \
            it."),
    term("remote key", &["rkey", "r_key", "stag", "steering tag"], "IBTA Vol 1 10.6",
        "Number that stands for registered memory. A peer that knows it may read or write there until it is \
            invalidated. iWARP calls it \
        STag."),
    term("RoCE", &["rocev2", "roce v2"], "IBTA annex A17",
        "RDMA over Converged Ethernet: InfiniBand packets in UDP, port 4791 (version 2), or directly in Ethernet \
            (version 1)."),
    term("RPC-over-RDMA", &["rpcrdma", "rpc/rdma"], "RFC 8166",
        "How NFS uses RDMA: a short header with chunks before each RPC message. RDMA_NOMSG says that the message \
            itself is in a chunk."),
    term("SMB Direct", &["smbd", "smbdirect"], "[MS-SMBD]",
        "How SMB uses RDMA: one negotiation, then messages with credits and fragments. Large data moves by RDMA, \
            described in the SMB2 \
        request."),
    term("SMB2_RDMA_TRANSFORM", &["rdma transform"], "[MS-SMB2] 2.2.43",
        "Says that data moved by RDMA is encrypted or signed, and with which nonce and signature."),
    term("snap length", &["snaplen", "snapshot length"], "",
        "The number of bytes that a capture keeps of each frame. The rest cannot be analyzed."),
    term("stall", &["starved"], "",
        "Time in which a side had something to send and no SMB Direct credit to send it with."),
    term("Terminate", &["rdmap terminate"], "RFC 5040 4.8",
        "The last message of an iWARP connection that failed. It says what was wrong; usually the side that received \
            it is at fault."),
    term("XID", &["rpc xid", "transaction id"], "RFC 5531 9",
        "Number that ties an RPC reply to its call."),
];

/// The term of this name, in any case.
pub(crate) fn find(wanted: &str) -> Option<&'static Term> {
    let wanted = wanted.trim();
    let is_it = |name: &str| name.eq_ignore_ascii_case(wanted);
    TERMS.iter().find(|t| is_it(t.name) || t.also.iter().any(|a| is_it(a)))
}

/// Name, text and source, in lines of at most `columns`.
pub(crate) fn shown(term: &Term, columns: usize) -> String {
    let mut out = format!("{}\n", term.name);
    for line in wrap(term.text, columns.clamp(26, 100) - 2) {
        out.push_str(&format!("  {line}\n"));
    }
    if !term.spec.is_empty() {
        out.push_str(&format!("  {}\n", term.spec));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_is_listed_once_in_order_and_in_sentences() {
        assert!(TERMS.len() >= 40);
        let mut names = std::collections::BTreeSet::new();
        for term in TERMS {
            assert!(term.text.ends_with('.') && !term.text.contains("  "), "{}", term.name);
            for name in term.also.iter().chain([&term.name]) {
                assert!(names.insert(name.to_ascii_lowercase()), "{name} stands there twice");
                assert!(find(&name.to_ascii_uppercase()).is_some_and(|t| t.name == term.name));
            }
        }
        let sorted = |t: &Term| t.name.to_ascii_lowercase();
        assert!(TERMS.is_sorted_by_key(sorted));
    }

    #[test]
    fn a_term_fits_a_terminal() {
        let text = shown(find("chunk").unwrap(), 60);
        assert!(
            text.starts_with("chunk\n  Memory that an RPC-over-RDMA header") && text.ends_with("  RFC 8166 3.4\n"),
            "{text}"
        );
        assert!(text.lines().all(|l| l.len() <= 60));
    }

    /// `UPDATE=1` rewrites the page.
    #[test]
    fn the_page_of_the_documentation_is_this_list() {
        let mut page =
            "# Glossary\nThe same as `rdmascope explain TERM`; made from `tui/src/glossary.rs`.\n\n| term | \
            meaning | defined in |\n| --- | --- | --- |\n"
                .to_owned();
        for term in TERMS {
            page.push_str(&format!("| {} | {} | {} |\n", term.name, term.text, term.spec));
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/glossary.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &page).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "UPDATE=1 writes docs/glossary.md anew");
    }
}
