//! Requirements of the specifications on both ends, as far as a capture can show them, and the rules that watch them:
//! `docs/compliance.md` is made of this and of the rulebook.

use rdmascope_analyzer::rules::{Group, Rule};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Level of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Must,
    Should,
}
use Level::{Must, Should};

/// Rules that watch a requirement; or none, and the reason.
enum By {
    Rules(&'static [Rule]),
    None(&'static str),
}
use By::{None as Unwatched, Rules};

/// The probe's case that tries a requirement, or a reason why there is none: one of [`WITHOUT_CASE`].
type Probe = &'static str;

/// The client must keep it, and the probe is the client.
const CLIENT: Probe = "the client's duty";
/// What the server sends by itself: no request of a client makes it break the rule.
const UNPROVOKED: Probe = "none: no request provokes it";
/// The server must be in a state that a client cannot bring about at will.
const STATE: Probe = "none: needs a state of the server";
/// Keeping it does not show on the wire.
const UNSEEN: Probe = "none: does not show";
/// The probe tests the SMB2 server only as far as RDMA goes.
const SMB2: Probe = "none: SMB2 apart from its RDMA channel is not probed";
/// The probe speaks SMB Direct.
const SPEAKS: Probe = "none: the probe speaks SMB Direct";
/// A layer that an adapter handles by itself.
const ADAPTER: Probe = "none: the adapter's part, not the server's";

/// Reasons for requirements without a case of the probe.
const WITHOUT_CASE: &[Probe] = &[CLIENT, UNPROVOKED, STATE, UNSEEN, SMB2, SPEAKS, ADAPTER];

/// One requirement: section, level, text in our words, rules that watch it, and the probe's case that tries it.
type Row = (&'static str, Level, &'static str, By, Probe);

/// A specification: its name as rules write it, its title, its requirements.
type Spec = (&'static str, &'static str, &'static [Row]);

#[rustfmt::skip]
const SPECS: &[Spec] = &[
    ("[MS-SMBD]", "SMB2 Remote Direct Memory Access (RDMA) Transport Protocol", &[
        ("2.2", Should, "Reserved fields and padding are 0.", Rules(&[Rule::SmbdReserved]), UNPROVOKED),
        ("2.2, 3.1.5.7", Must, "Nothing is sent before the Negotiate Response but that.", Rules(&[Rule::BugKsmbdEarlyData, Rule::SmbdNegFirst]), UNPROVOKED),
        ("2.2.1, 2.2.2", Must, "MinVersion and MaxVersion are 0x0100, in requests and responses.", Rules(&[Rule::SmbdNegRange]), UNPROVOKED),
        ("2.2.2", Must, "NegotiatedVersion is 0x0100.", Rules(&[Rule::SmbdNegRspVersion]), "BVT_SmbdNegotiate_Basic"),
        ("2.2.2", Must, "Status is 0 where the negotiation succeeds.", Rules(&[Rule::SmbdNegRspStatus]), "BVT_SmbdNegotiate_Basic"),
        ("2.2.2", Must, "PreferredSendSize of the response is no more than MaxReceiveSize of the request.", Rules(&[Rule::SmbdNegRspPreferred]), UNPROVOKED),
        ("2.2.3", Must, "Flags is 0 or SMB_DIRECT_RESPONSE_REQUESTED.", Rules(&[Rule::SmbdFlags]), UNPROVOKED),
        ("2.2.3", Must, "DataOffset is a multiple of 8; DataOffset and DataLength are 0 without data.", Rules(&[Rule::SmbdDataAlign]), "SmbdDataTransfer_NegativeParameter_DataOffset_AgainstMessageLength"),
        ("2.2.3.1", Must, "A descriptor names one registered range: RDMA stays inside of it.", Rules(&[Rule::RdmaKeyBounds, Rule::RdmaKeyUnknown]), CLIENT),
        ("3.1.1.1", Must, "No message is longer than the peer's MaxReceiveSize.", Rules(&[Rule::SmbdDataTooBig]), "SmbdDataTransfer_ReceiveMaxReceiveSize"),
        ("3.1.4.1", Must, "The initiator sends a Negotiate Request when its connection stands.", Rules(&[Rule::SmbdNegTimeout, Rule::SmbdNegFirst]), "SmbdNegotiate_NegotiationTimer"),
        ("3.1.4.2", Must, "A message is no longer than the peer's MaxFragmentedSize.", Rules(&[Rule::SmbdFragTooBig]), "SmbdDataTransfer_NegativeParameter_DataLength_AgainstMaxFragmentedSize"),
        ("3.1.4.2", Must, "Fragments are sent one after the other, in strict order.", Rules(&[Rule::SmbdFragRemaining, Rule::BugSmbdirectBatchInterleave]), "SmbdDataTransfer_InterleavedMessage"),
        ("3.1.4.3", Must, "Memory is registered for the one access that it is meant for.", Rules(&[Rule::RdmaKeyDirection]), CLIENT),
        ("3.1.4.3", Must, "Descriptors are listed in order, each with offset, token and length of its segment.", Unwatched("which memory the sender registered is not on the wire"), UNSEEN),
        ("3.1.4.4", Must, "When memory is deregistered, no remote access to it is possible any more.", Rules(&[Rule::RdmaKeyStale, Rule::RdmaKeyLeak]), CLIENT),
        ("3.1.4.5, 3.1.4.6", Must, "RDMA moves what was asked for, to and from where the descriptors say.", Rules(&[Rule::RdmaLength, Rule::RdmaKeyBounds]), "Smb2OverRdmaChannel_ReadWriteMultipleBufferDescriptorList"),
        ("3.1.5.1", Must, "A message takes a credit; without one nothing is sent.", Rules(&[Rule::SmbdCreditOverrun]), "SmbdCreditMgmt_SendWithoutCredit"),
        ("3.1.5.1, 3.1.5.9", Must, "The last credit goes with a message that grants some.", Rules(&[Rule::SmbdCreditLast, Rule::SmbdCreditDeadlock]), "SmbdCreditMgmt_ConsumeAllSendCredits"),
        ("3.1.5.1", Must, "A request for a response sets SMB_DIRECT_RESPONSE_REQUESTED once its timer asks for it.", Unwatched("the sender's timer is not on the wire"), UNSEEN),
        ("3.1.5.1", Should, "A token that is to be invalidated goes with the Send.", Rules(&[Rule::RdmaInvalidate]), CLIENT),
        ("3.1.5.3", Must, "All fields but the versions and Status of a refusal are 0.", Rules(&[Rule::SmbdNegRspFailureFields]), UNPROVOKED),
        ("3.1.5.3", Should, "After a refusal the connection is ended.", Unwatched("how soon is left open"), UNSEEN),
        ("3.1.5.4", Must, "After the negotiation only Data Transfer messages are sent.", Rules(&[Rule::SmbdNegFirst]), "SmbdNegotiate_SecondRequest"),
        ("3.1.5.4", Must, "DataOffset and DataLength lie inside of the send size.", Rules(&[Rule::SmbdDataTooBig, Rule::SmbdDataLength]), "SmbdDataTransfer_VariableLengthSegment"),
        ("3.1.5.4", Should, "DataOffset is 24.", Unwatched("any multiple of 8 does as well"), UNSEEN),
        ("3.1.5.4", Must, "Padding is 0.", Rules(&[Rule::SmbdReserved]), UNPROVOKED),
        ("3.1.5.4", Must, "RemainingDataLength is what is still to come, 0 in the last fragment.", Rules(&[Rule::SmbdFragRemaining]), "SmbdDataTransfer_NegativeParameter_RemainingDataLength_Less"),
        ("3.1.5.4", Must, "A token is invalidated with exactly one fragment.", Rules(&[Rule::RdmaInvalidate]), UNPROVOKED),
        ("3.1.5.6", Must, "A Negotiate Request has at least 20 bytes.", Rules(&[Rule::SmbdNegReqLength]), "SmbdNegotiate_UncompletedMessage"),
        ("3.1.5.6", Must, "Its range of versions includes 0x0100; else it is answered with STATUS_NOT_SUPPORTED.", Rules(&[Rule::SmbdNegReqVersion, Rule::SmbdNegAccepted]), "SmbdNegotiate_NegativeParameter_MinVersion"),
        ("3.1.5.6", Must, "Its CreditsRequested is more than 0.", Rules(&[Rule::SmbdNegReqCredits]), "SmbdNegotiate_NegativeParameter_CreditsRequested"),
        ("3.1.5.6", Must, "Its MaxReceiveSize is 128 or more.", Rules(&[Rule::SmbdNegReqRecvsize]), "SmbdNegotiate_NegativeParameter_MaxReceiveSize"),
        ("3.1.5.6", Must, "Its MaxFragmentedSize is 131,072 or more.", Rules(&[Rule::SmbdNegReqFragsize]), "SmbdNegotiate_NegativeParameter_MaxFragmentedSize"),
        ("3.1.5.6", Must, "A receiver ends the connection over a request that breaks one of these.", Rules(&[Rule::SmbdNegAccepted]), "SmbdNegotiate_NegativeParameter_MaxVersion"),
        ("3.1.5.6", Must, "A server that can post no receive refuses.", Rules(&[Rule::SmbdNegRspGranted]), STATE),
        ("3.1.5.7", Must, "A Negotiate Response has at least 32 bytes.", Rules(&[Rule::SmbdNegRspLength]), UNPROVOKED),
        ("3.1.5.7", Must, "Its CreditsGranted and CreditsRequested are more than 0.", Rules(&[Rule::SmbdNegRspGranted, Rule::SmbdNegRspRequested]), UNPROVOKED),
        ("3.1.5.7", Must, "Its MaxReceiveSize is 128 or more, its MaxFragmentedSize 131,072 or more.", Rules(&[Rule::SmbdNegRspRecvsize, Rule::SmbdNegRspFragsize]), "SmbdNegotiate_LeastMaxReceiveSize"),
        ("3.1.5.8", Must, "A Data Transfer message has at least 20 bytes, and its data lies inside of it.", Rules(&[Rule::SmbdDataLength, Rule::BugCve202539943]), "SmbdDataTransfer_NegativeParameter_DataLength_AgainstMessageLength"),
        ("3.1.5.8", Must, "CreditsRequested is 1 or more.", Rules(&[Rule::SmbdDataCreditsRequested]), "SmbdCreditMgmt_NegativeParameter_CreditRequested"),
        ("3.1.5.8", Must, "DataLength and RemainingDataLength together stay within MaxFragmentedSize.", Rules(&[Rule::SmbdFragTooBig, Rule::BugCve202539942]), "SmbdDataTransfer_NegativeParameter_RemainingDataLength_Greater"),
        ("3.1.5.8", Must, "A request for a response is answered promptly.", Rules(&[Rule::SmbdKeepalive]), "SmbdDataTransfer_IdleConnection_Client"),
        ("3.1.5.9", Should, "A receiver posts receives until the peer holds what it asks for.", Rules(&[Rule::SmbdCreditStarved, Rule::SmbdCreditStall, Rule::SmbdCreditExhausted]), "BVT_SmbdCreditMgmt_OperationWithMinimumCredits"),
        ("3.1.5.9", Must, "A credit is granted for a receive that is posted.", Rules(&[Rule::RcRnr, Rule::BugCve202631538, Rule::BugCve202631539]), UNPROVOKED),
        ("3.1.5.9", Must, "No more is granted than can be counted.", Rules(&[Rule::SmbdCreditOverflow]), "SmbdCreditMgmt_GrantsOverflow"),
        ("3.1.6.1, 3.1.7.2", Should, "A server waits 5 seconds for the Negotiate Request, a client 120 for the \
            response; then it ends the connection.", Rules(&[Rule::SmbdNegTimeout]), "SmbdNegotiate_NegotiationTimer_Timeout"),
        ("3.1.6.2", Should, "A peer that does not answer is hung up on when the timer ends again.", Rules(&[Rule::SmbdKeepalive]), "SmbdDataTransfer_IdleConnection_Server_Timeout"),
        ("4.5", Must, "Data is written before the reply that tells of it.", Rules(&[Rule::RdmaOrder]), "BVT_Smb2OverRdmaChannel_ReadLargeFile"),
        ("6.1", Must, "IRD and ORD of the 8 bytes of private data are more than 0.", Rules(&[Rule::MpaIrdord]), ADAPTER),
        ("6.2", Must, "A reply's depths are the smaller of both sides'.", Rules(&[Rule::MpaIrdord, Rule::RdmaReadDepth]), ADAPTER),
    ]),
    ("[MS-SMB2]", "Server Message Block (SMB) Protocol Versions 2 and 3: credits, message ids, signing, the RDMA channel", &[
        ("2.2.1", Must, "StructureSize is 64; NextCommand is a multiple of 8.", Rules(&[Rule::Smb2Malformed]), SMB2),
        ("2.2.2", Must, "A failing status comes with an ERROR body.", Rules(&[Rule::Smb2ErrorBody]), SMB2),
        ("2.2.19, 2.2.21", Must, "Without a channel there is no channel information.", Rules(&[Rule::Smb2Channel]), CLIENT),
        ("2.2.19, 2.2.21", Must, "Channel information lies inside of the request and describes the memory of the whole \
            I/O.", Rules(&[Rule::Smb2Channel, Rule::BugKsmbdChannelInfo]), CLIENT),
        ("2.2.43", Must, "An RDMA transform is for dialect 3.1.1, where both sides agreed on it.", Rules(&[Rule::Smb2TransformDialect]), CLIENT),
        ("2.2.43", Must, "Its Channel is one of three; with SMB2_CHANNEL_NONE offset and length are 0.", Rules(&[Rule::Smb2TransformType, Rule::Smb2TransformBounds]), CLIENT),
        ("2.2.43", Must, "TransformCount is more than 0.", Rules(&[Rule::Smb2TransformCount]), CLIENT),
        ("2.2.43", Must, "Its reserved fields are 0.", Rules(&[Rule::Smb2TransformReserved]), CLIENT),
        ("2.2.43.1", Must, "TransformType, signature and nonce are those of what was agreed.", Rules(&[Rule::Smb2TransformType, Rule::Smb2TransformLengths]), CLIENT),
        ("3.1.4.1", Must, "The signature is that of the session's key.", Rules(&[Rule::Smb2Signature]), SMB2),
        ("3.1.5.2", Must, "CreditCharge pays for the payload, 64 KiB a credit.", Rules(&[Rule::Smb2Credit]), CLIENT),
        ("3.2.4.1.1", Must, "A client signs every request of a session that requires it, and TREE_CONNECT in dialect \
            3.1.1.", Rules(&[Rule::Smb2Unsigned]), CLIENT),
        ("3.2.4.1.2", Must, "A client asks for at least as many credits as it charges.", Unwatched("a client that asks \
            for fewer only harms itself"), UNSEEN),
        ("3.2.4.1.3", Must, "A request takes a MessageId that was granted and not used; CANCEL takes none.", Rules(&[Rule::Smb2MessageId, Rule::Smb2Credit]), CLIENT),
        ("3.2.5.1.2", Must, "A client discards a reply to nothing that it asked.", Rules(&[Rule::Smb2Reply]), CLIENT),
        ("3.2.5.3", Must, "A client without a session goes no further.", Rules(&[Rule::Smb2Session]), CLIENT),
        ("3.2.5.19", Must, "A client acknowledges a break that asks for it.", Rules(&[Rule::Smb2BreakKept]), SMB2),
        ("3.3.1.2", Must, "A server never leaves a client without credits.", Rules(&[Rule::Smb2Credit]), SMB2),
        ("3.3.4.1", Must, "Each request is answered, with its MessageId and command, once.", Rules(&[Rule::Smb2Reply, Rule::Smb2Unanswered]), SMB2),
        ("3.3.4.1.1", Must, "The reply to a signed request is signed, interim replies apart.", Rules(&[Rule::Smb2Unsigned]), SMB2),
        ("3.3.4.1.3", Must, "Replies of a compound begin at multiples of 8.", Rules(&[Rule::Smb2Malformed]), SMB2),
        ("3.3.5.2.3", Must, "A server ends the connection over a MessageId outside of the window.", Rules(&[Rule::Smb2MessageId]), SMB2),
        ("3.3.5.2.5", Must, "A server refuses a CreditCharge that is too small with STATUS_INVALID_PARAMETER.", Rules(&[Rule::Smb2Credit]), SMB2),
        ("3.2.5.1.3", Must, "A reply has the SessionId of its request.", Rules(&[Rule::Smb2SessionId]), SMB2),
        ("3.3.5.2.9, 3.3.5.2.11", Must, "A request names a session and a tree connect that were set up.", Rules(&[Rule::Smb2SessionId]), CLIENT),
        ("3.3.5.4", Must, "The server chooses a dialect that the client offered.", Rules(&[Rule::Smb2Dialect]), SMB2),
        ("3.3.5.2.7", Must, "The first request of a compound is not related to one before it.", Rules(&[Rule::Smb2Malformed]), SMB2),
        ("3.3.5.12, 3.3.5.13", Must, "READ and WRITE move their data by RDMA as asked, and invalidate the first key \
            with the reply.", Rules(&[Rule::RdmaLength, Rule::RdmaInvalidate, Rule::BugKsmbd2fd5dcb1c8ef]), "BVT_Smb2OverRdmaChannel_WriteLargeFile"),
    ]),
    ("RFC 8166", "Remote Direct Memory Access Transport for Remote Procedure Call Version 1", &[
        ("3.3.1", Must, "No more calls are outstanding than were granted.", Rules(&[Rule::RpcrdmaCreditOverrun, Rule::RcRnr]), SPEAKS),
        ("3.3.1", Must, "The granted value is not zero.", Rules(&[Rule::RpcrdmaCreditZero]), SPEAKS),
        ("3.3.2", Must, "A Send is no longer than the receiver's inline threshold.", Rules(&[Rule::RpcrdmaInline]), SPEAKS),
        ("3.3.3", Must, "A requester waits for a first reply before it sends a second call.", Rules(&[Rule::RpcrdmaCreditFirst]), SPEAKS),
        ("3.4.3", Must, "A segment is one range of memory.", Rules(&[Rule::BugCve202689533, Rule::RdmaKeyBounds]), SPEAKS),
        ("3.4.4", Must, "The count in the stream is that of the chunk.", Rules(&[Rule::RpcrdmaChunkLength]), SPEAKS),
        ("3.4.4", Must, "A word that says whether optional data is there, and the one that chooses an arm of a union, \
            stay in the stream.", Unwatched("without them in the stream the message is read as another one, so that no \
                reader can tell what was left out"), UNSEEN),
        ("3.4.6", Must, "A requester offers a Write chunk for the largest result that there can be.", Unwatched("how large a result can be is the server's knowledge; a chunk that was too small is seen as an error reply"), UNSEEN),
        ("3.4.5", Must, "Positions of Read chunks are multiples of four, rise, and lie inside of the message.", Rules(&[Rule::RpcrdmaPosition, Rule::BugCve202689526]), SPEAKS),
        ("3.4.6", Must, "A Write chunk has segments; a reply returns it as it was offered, with the lengths that were \
            written.", Rules(&[Rule::RpcrdmaWriteShape, Rule::BugCve202689532, Rule::BugCve202693228]), SPEAKS),
        ("3.4.6", Must, "No padding is written into a Write chunk.", Rules(&[Rule::RpcrdmaChunkLength]), SPEAKS),
        ("3.5.2", Must, "Data is written before the reply that tells of it.", Rules(&[Rule::RdmaOrder]), SPEAKS),
        ("3.5.3", Must, "RDMA_NOMSG has its message in a chunk.", Rules(&[Rule::RpcrdmaNomsg]), SPEAKS),
        ("4.2.1", Must, "rdma_xid is the XID of the message.", Rules(&[Rule::RpcrdmaXid]), SPEAKS),
        ("4.2.2", Must, "rdma_vers is 1.", Rules(&[Rule::RpcrdmaVersion]), SPEAKS),
        ("4.2.4, 4.6", Must, "RDMA_MSGP and RDMA_DONE are not sent.", Rules(&[Rule::RpcrdmaProc]), SPEAKS),
        ("4.5", Must, "A header that cannot be used is answered with RDMA_ERROR, in the version of the call.", Rules(&[Rule::RpcrdmaError]), SPEAKS),
        ("4.5.2", Must, "A header can be read to its end.", Rules(&[Rule::RpcrdmaMalformed]), SPEAKS),
        ("4.5.2", Should, "Arguments that cannot be read are answered with GARBAGE_ARGS in an RDMA_MSG.", Unwatched("whether a server can read them is not on the wire"), UNSEEN),
        ("4.5", Must, "RDMA_ERROR is sent only to a call.", Rules(&[Rule::RpcrdmaXid]), SPEAKS),
        ("4.3.2, 6.1", Must, "A result for which a Write chunk is offered is moved there.", Rules(&[Rule::RpcrdmaDdp]), SPEAKS),
        ("6.1", Must, "Only what the upper-layer binding lists is reduced, and nothing under RPCSEC_GSS integrity or \
            privacy (8.2.2.3).", Rules(&[Rule::RpcrdmaDdp]), SPEAKS),
        ("8.1.2", Should, "Handles are hard to predict.", Rules(&[Rule::RdmaKeyPredictable]), SPEAKS),
        ("8.1.3", Should, "A handle is invalid when its call is done.", Rules(&[Rule::RdmaKeyStale, Rule::RdmaKeyLeak]), SPEAKS),
        ("8.1.3", Should, "A requester registers memory only for as long as it must.", Unwatched("when memory is \
            registered is not on the wire"), UNSEEN),
    ]),
    ("RFC 8167", "Bidirectional Remote Procedure Call on RPC-over-RDMA Transports", &[
        ("2.4", Must, "An XID is unique among the outstanding calls of its direction; both directions may use the same.", Rules(&[Rule::RpcrdmaXid]), SPEAKS),
        ("4.1", Must, "Credits of the two directions are counted apart, and no grant is zero.", Rules(&[Rule::RpcrdmaCreditOverrun, Rule::RpcrdmaCreditZero]), SPEAKS),
        ("4.2", Must, "A reverse message fits the inline threshold.", Rules(&[Rule::RpcrdmaInline]), SPEAKS),
        ("5.1, 5.2", Must, "The XID of the header is that of the message; a reply has the XID of its call.", Rules(&[Rule::RpcrdmaXid]), SPEAKS),
        ("5.3", Must, "A responder without support for chunks answers a call that offers some with ERR_CHUNK.", Rules(&[Rule::RpcrdmaError]), SPEAKS),
        ("6", Must, "No calls of the reverse direction are made before the peer's upper layer has said that it takes \
            them.", Unwatched("each upper layer has its own way to say so, and NFS 4 may say it under RPCSEC_GSS privacy"), UNSEEN),
    ]),
    ("RFC 8267", "Network File System (NFS) Upper-Layer Binding to RPC-over-RDMA Version 1", &[
        ("4", Must, "NFS 2 and 3: only the data of READ and WRITE and the target of READLINK and SYMLINK is reduced.", Rules(&[Rule::RpcrdmaDdp]), SPEAKS),
        ("6.1", Must, "NFS 4: the same of READ, WRITE, READLINK and CREATE.", Rules(&[Rule::RpcrdmaDdp]), SPEAKS),
        ("5", Must, "Other programs (MOUNT, NLM, NSM, NFSACL) reduce nothing.", Rules(&[Rule::RpcrdmaDdp]), SPEAKS),
        ("6.3", Must, "A server of NFS 4 listens on port 20049.", Rules(&[Rule::NfsPathRefused, Rule::NfsPathSilent]), SPEAKS),
        ("6.4.1", Must, "Each result that may be moved is in the Write chunk that matches it, in their order.", Rules(&[Rule::RpcrdmaDdp]), SPEAKS),
        ("6.4.2", Should, "A client that does not know its server sends one Read chunk besides that of a long call, \
            one Write chunk, and no more than 16 segments in each.", Unwatched("what a client knows of its server is \
                not on the wire; a server with lower limits answers with an error"), UNSEEN),
        ("6.5", Must, "Callbacks have no data in chunks of its own.", Rules(&[Rule::RpcrdmaBackward]), SPEAKS),
        ("6.5.2", Must, "A server sends long callbacks only if the client's ca_maxrequestsize allows them.", Unwatched("the callback's size is compared with a limit of the session, which the connections of one session share; a client that refuses answers with an error"), UNSEEN),
        ("6.7.2", Should, "A client keeps one credit for a check of its server.", Unwatched("an unused credit may be \
            kept for anything"), UNSEEN),
        ("3", Should, "The size of a reply is estimated well enough for a Reply chunk.", Rules(&[Rule::RpcrdmaError]), SPEAKS),
    ]),
    ("RFC 8797", "RDMA Connection Manager Private Data for RPC-over-RDMA Version 1", &[
        ("4.1", Must, "Send with Invalidate goes only to a client that set the flag.", Rules(&[Rule::RdmaInvalidate]), SPEAKS),
        ("4.1", Must, "Nor does a server invalidate that clears the flag itself.", Unwatched("Linux's server clears it \
            and invalidates all the same; a client that set its flag can take it"), UNSEEN),
        ("4.1", Must, "Only handles of the call are invalidated with its reply.", Rules(&[Rule::RdmaInvalidate]), SPEAKS),
        ("4.2", Must, "Messages keep to the receive size that the peer announced.", Rules(&[Rule::RpcrdmaInline]), SPEAKS),
        ("4", Must, "Reserved bits are 0.", Unwatched("receivers must ignore them"), UNSEEN),
        ("5.1, 5.2", Must, "Private data that is not understood is ignored.", Unwatched("a receiver that ignores it \
            shows nothing"), UNSEEN),
    ]),
    ("RFC 5040", "A Remote Direct Memory Access Protocol Specification", &[
        ("5.2.2", Must, "A Read Response has exactly the bytes that were asked for.", Rules(&[Rule::BugCve202664268, Rule::RdmaLength]), ADAPTER),
        ("4.8, 7", Must, "An error ends the stream with a Terminate.", Rules(&[Rule::RdmapTerminate]), ADAPTER),
        ("5.2.2, 6.1", Must, "No more Read Requests are outstanding than were agreed.", Rules(&[Rule::RdmaReadDepth]), ADAPTER),
        ("7.2", Must, "A Send with Invalidate names an STag that may be invalidated.", Rules(&[Rule::RdmaInvalidate]), ADAPTER),
    ]),
    ("RFC 5041", "Direct Data Placement over Reliable Transports", &[
        ("4.1, 5.2", Must, "Segments of an untagged message follow each other, the last one marked.", Rules(&[Rule::DdpOverlap]), ADAPTER),
        ("4.3, 7.1", Must, "MSNs begin with 1 and rise by 1.", Rules(&[Rule::DdpMsn]), ADAPTER),
        ("7.1", Must, "A tagged segment stays inside of its buffer.", Rules(&[Rule::RdmaKeyBounds, Rule::RdmaKeyUnknown]), ADAPTER),
    ]),
    ("RFC 5044", "Marker PDU Aligned Framing for TCP", &[
        ("4.1", Must, "The ULPDU length covers the header that it carries.", Rules(&[Rule::BugCve202664102]), ADAPTER),
        ("4.2, 4.3", Must, "A marker stands every 512 bytes and points to its FPDU, where it was asked for.", Rules(&[Rule::MpaMarker]), ADAPTER),
        ("4.4, 8", Must, "The CRC of an FPDU is right, where it is used.", Rules(&[Rule::MpaCrc]), ADAPTER),
        ("7.1.2", Must, "An MPA Request is answered with an MPA Reply.", Rules(&[Rule::MpaStartup, Rule::MpaReject]), ADAPTER),
        ("7.1.1", Must, "The revision exists.", Rules(&[Rule::MpaRevision]), ADAPTER),
        ("7.1.2", Must, "The initiator sends the first FPDU.", Unwatched("relaxed by RFC 6581; SMB Direct and NFS \
            begin with the initiator's request anyway"), UNSEEN),
    ]),
    ("RFC 6581", "Enhanced Remote Direct Memory Access (RDMA) Connection Establishment", &[
        ("6, 10", Must, "A reply has no higher revision than its request.", Rules(&[Rule::MpaRevision]), ADAPTER),
        ("9.1", Must, "The reply's ORD is no more than the request's IRD.", Rules(&[Rule::MpaIrdord]), ADAPTER),
        ("9.1", Must, "The side that connects reduces its ORD to the reply's IRD.", Rules(&[Rule::RdmaReadDepth]), ADAPTER),
        ("9.2", Must, "The ready-to-receive message is the one agreed on.", Unwatched("what it is used for is a matter \
            of the peers' adapters"), UNSEEN),
    ]),
    ("IBTA", "InfiniBand Architecture Specification, volume 1, and annexes A16, A17 (RoCE)", &[
        ("7.8.1, A17.3", Must, "The invariant CRC is right.", Rules(&[Rule::RcIcrc]), ADAPTER),
        ("9.2", Must, "A packet has room for its padding and CRC, and an opcode that exists.", Rules(&[Rule::BugCve202646043, Rule::BugRxe4c6f86d]), ADAPTER),
        ("9.6.1.1", Must, "A packet goes to the queue pair of its connection.", Rules(&[Rule::RcDestQp]), ADAPTER),
        ("9.6.1.1.1", Must, "The version of the transport header is 0.", Rules(&[Rule::RcVersion]), ADAPTER),
        ("9.6.1.1.3", Must, "The partition key is that of the queue pair.", Rules(&[Rule::RcPKey]), ADAPTER),
        ("9.7.1", Must, "PSNs follow each other.", Rules(&[Rule::RcRetransmit, Rule::RcGap, Rule::RcReorder, Rule::RcSpurious]), ADAPTER),
        ("9.7.4.1.2", Must, "The packets of a message are First, Middle, Last.", Rules(&[Rule::RcOpcode]), ADAPTER),
        ("9.7.5.2", Must, "A request that cannot be carried out is answered with a NAK.", Rules(&[Rule::RcNak, Rule::RcRnr]), ADAPTER),
        ("9.7.6.1", Must, "What is not acknowledged is sent again, until the retry count is used up.", Rules(&[Rule::PeerSilent]), ADAPTER),
        ("9.4.4, 12.6.5", Must, "No more Reads are outstanding than the responder takes.", Rules(&[Rule::RdmaReadDepth]), ADAPTER),
        ("9.8.3", Must, "A datagram is no longer than the path MTU.", Rules(&[Rule::BugCve202440992]), ADAPTER),
        ("12.6.7", Must, "A REQ that is refused is answered with a REJ and its reason.", Rules(&[Rule::CmReject]), ADAPTER),
        ("12.9.8", Must, "A REQ is answered, or sent again.", Rules(&[Rule::CmTimeout]), ADAPTER),
        ("12.6.10", Must, "A connection ends with DREQ and DREP.", Rules(&[Rule::CmDisconnect]), ADAPTER),
        ("A17.9", Should, "A receiver of packets with congestion marks tells the sender.", Rules(&[Rule::RcCnp, Rule::RcEcn]), ADAPTER),
        ("13.6", Must, "Other classes of management datagrams are well-formed.", Unwatched("only connection management \
            is followed"), UNSEEN),
    ]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rules_of(by: &By) -> &'static [Rule] {
    match by {
        Rules(rules) => rules,
        Unwatched(_) => &[],
    }
}

fn page() -> String {
    let mut out = String::from(
        "# Compliance\nThe requirements of the specifications for both sides, in our words, as far as a capture can \
            show them, and the rules\nthat \
        check them. Made from `analyzer/tests/compliance.rs` and the rules; `rdmascope explain RULE` says more about \
        each\nrule.\n\nEach \
        rule has a conversation that breaks it and the same one without the violation in\n[analyzer/tests/rules.rs]\
        (../analyzer/tests/rules.rs). The last column names the case of `rdmascope probe` that tests a\nserver for the \
        requirement, or says why there is none.\n\n| specification | requirements | checked |\n| --- | --- | --- |\n",
    );
    for (name, _, rows) in SPECS {
        let watched = rows.iter().filter(|row| !rules_of(&row.3).is_empty()).count();
        let _ = writeln!(out, "| {name} | {} | {watched} |", rows.len());
    }
    for (name, title, rows) in SPECS {
        let _ = writeln!(
            out,
            "\n## {name}\n{title}.\n\n| section | | requirement | checked by | probe |\n| --- | --- | --- | --- | --- |"
        );
        for (section, level, text, by, probe) in *rows {
            let level = if *level == Must { "MUST" } else { "SHOULD" };
            let by = match by {
                Rules(rules) => rules.iter().map(|rule| rule.id()).collect::<Vec<_>>().join(", "),
                Unwatched(why) => format!("nothing: {why}"),
            };
            let _ = writeln!(out, "| {section} | {level} | {text} | {by} | {probe} |");
        }
    }
    out.push_str(
        "\n## Rules that no specification contains\nThey report costs, problems of the capture, or how a \
        connection ended.\n\n| rule | what happened | source |\n| --- | --- | --- |\n",
    );
    let named: BTreeSet<&str> =
        SPECS.iter().flat_map(|(_, _, rows)| rows.iter().flat_map(|r| rules_of(&r.3))).map(|r| r.id()).collect();
    for rule in Rule::ALL.iter().filter(|rule| !named.contains(rule.id())) {
        let row = rule.row();
        let _ = writeln!(out, "| {} | {} | {} |", row.id, row.title, row.spec);
    }
    out
}

#[test]
fn the_page_is_that_of_the_rulebook() {
    let (path, page) = (root().join("docs/compliance.md"), page());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).expect("docs/compliance.md");
    }
    assert!(std::fs::read_to_string(&path).unwrap_or_default() == page, "UPDATE=1 writes docs/compliance.md anew");
}

/// A rule says itself which sections it is from: it names each specification under which it is listed.
#[test]
fn rules_are_listed_where_they_say_they_are_from() {
    let mut wrong = Vec::new();
    for (name, _, rows) in SPECS {
        for (section, _, _, by, _) in *rows {
            for rule in rules_of(by).iter().filter(|rule| !rule.row().spec.contains(name)) {
                // a violation of one layer shows as another's
                if rule.row().group != Group::KnownBug && !SHOWN_BY.contains(rule) {
                    wrong.push(format!(
                        "{name} {section} is watched by {}, which is of {}",
                        rule.id(),
                        rule.row().spec
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Rules that report the violation one layer above or below.
const SHOWN_BY: &[Rule] = &[
    Rule::RcRnr,
    Rule::RdmaKeyBounds,
    Rule::RdmaKeyUnknown,
    Rule::RdmaLength,
    Rule::RdmaInvalidate,
    Rule::RdmaReadDepth,
    Rule::RpcrdmaInline,
    Rule::RpcrdmaError,
    Rule::MpaIrdord,
    Rule::SmbdCreditStall,
];

#[test]
fn requirements_are_sentences_and_their_probe_cases_exist() {
    let probe = ["probe/mod.rs", "transport/iwarp/cases.rs", "transport/roce/cases.rs"]
        .map(|p| std::fs::read_to_string(root().join("replay/src").join(p)).expect("cases of the probe"));
    for (name, _, rows) in SPECS {
        for (section, _, text, by, case) in *rows {
            assert!(text.ends_with('.') && text.len() > 12 && !section.is_empty(), "{name} {section}: {text}");
            if let Unwatched(why) = by {
                assert!(why.len() > 20 && !why.ends_with('.'), "{name} {section}: {why}");
            }
            assert!(
                WITHOUT_CASE.contains(case) || probe.iter().any(|source| source.contains(&format!("\"{case}\""))),
                "{case}"
            );
        }
    }
}
