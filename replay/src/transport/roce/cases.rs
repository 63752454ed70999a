//! Cases of the probe that need RoCEv2 in user space, since a card never sends such packets. Each is a fault of
//! [`super::fault`], with the expected result.

use crate::transport::case::{OwnCase, Steps};

const fn case(name: &'static str, section: &'static str, text: &'static str, steps: Steps) -> OwnCase {
    OwnCase { name, section, text, dies_negotiating: matches!(steps, Steps::FailsToNegotiate(_)), steps }
}

/// A fault that the server must survive: all operations complete.
const fn goes_on(name: &'static str, section: &'static str, text: &'static str, fault: &'static str) -> OwnCase {
    case(name, section, text, Steps::Reads(fault))
}

/// The same in the answers to the server's RDMA Reads.
const fn goes_on_writing(
    name: &'static str,
    section: &'static str,
    text: &'static str,
    fault: &'static str,
) -> OwnCase {
    case(name, section, text, Steps::Writes(fault))
}

/// One that ends the connection: the server serves on.
const fn ends(name: &'static str, section: &'static str, text: &'static str, fault: &'static str) -> OwnCase {
    case(name, section, text, Steps::FailsToNegotiate(fault))
}

/// One in the answers to the server's RDMA Reads that ends the connection: the server serves on.
const fn breaks(name: &'static str, section: &'static str, text: &'static str, fault: &'static str) -> OwnCase {
    case(name, section, text, Steps::FailsToWrite(fault))
}

#[rustfmt::skip]
pub(super) const CASES: &[OwnCase] = &[
    goes_on("Roce_Plain", "[IBA 1] 9.7", "a connection without a fault", "lose@1000000"),
    goes_on("Roce_LostPackets", "[IBA 1] 9.7.5.2", "one packet in 20 is lost: it is sent again after a NAK or a timeout", "lose@1/20"),
    goes_on("Roce_RepeatedPackets", "[IBA 1] 9.7.1", "every packet arrives twice: the copy has no effect", "repeat@1-"),
    goes_on("Roce_ReorderedPackets", "[IBA 1] 9.7.5.2.8", "one packet in 10 arrives after the next one", "reorder@1/10"),
    goes_on("Roce_LatePacket", "[IBA 1] 9.7.5.2.8", "a packet arrives 50 ms late", "delay@4"),
    goes_on("Roce_WrongPsn", "[IBA 1] 9.7.5.2.8", "a packet number that is 1000 ahead is answered with a NAK for the \
        number expected", "wrong-psn@3"),
    goes_on("Roce_WrongIcrc", "[IBA 1] 7.8.1", "a packet with a wrong invariant CRC is dropped", "wrong-icrc@3"),
    goes_on("Roce_WrongPKey", "[IBA 1] 9.6.1.1.3", "a packet of another partition is dropped", "wrong-pkey@3"),
    goes_on("Roce_WrongQueuePair", "[IBA 1] 9.6.1.1", "a packet to a queue pair that does not exist is dropped", "wrong-qp@3"),
    goes_on("Roce_SequenceNak", "[IBA 1] 9.7.5.2.8", "after a NAK for a missing packet, it and all later ones are sent \
        again", "nak-sequence@3"),
    goes_on("Roce_AckOfUnsent", "[IBA 1] 9.7.5.1", "an acknowledgement of a packet that was never sent is ignored", "ack-unsent@2"),
    goes_on_writing("Roce_LostReadResponse", "[IBA 1] 9.7.5.1.6", "the missing part of an RDMA Read response is \
        requested again", "lose-response@2"),
    goes_on_writing("Roce_ReorderedReadResponse", "[IBA 1] 9.7.5.1.6", "packets of an RDMA Read response in the wrong \
        order", "reorder-response@2"),
    goes_on("Roce_Congestion", "[IBA 1] A17.9", "packets with a congestion mark are accepted", "congested@1-"),
    goes_on("Roce_CnpFlood", "[IBA 1] A17.9", "a congestion notification before every packet", "cnp-flood@1-"),
    ends("Roce_InvalidRequestNak", "[IBA 1] 9.7.5.2.8", "a NAK for an invalid request ends the connection, and the \
        server goes on", "nak-invalid@2"),
    ends("Roce_AccessNak", "[IBA 1] 9.7.5.2.8", "a NAK for a remote access error ends the connection, and the server \
        goes on", "nak-access@2"),
    ends("Roce_OperationNak", "[IBA 1] 9.7.5.2.8", "a NAK for an operational error of the client ends the connection, \
        and the server goes on", "nak-operation@2"),
    ends("Roce_ReliableDatagramNak", "[IBA 1] 9.7.5.2.8", "a NAK for an invalid reliable-datagram request ends the \
        connection, and the server goes on", "nak-rd@2"),
    breaks("Roce_ShortReadResponse", "[IBA 1] 9.7.5.1.6", "an RDMA Read response that is too short ends the \
        connection, and the server goes on", "short-response@2"),
    breaks("Roce_LongReadResponse", "[IBA 1] 9.7.5.1.6", "an RDMA Read response that is too long ends the connection, \
        and the server goes on", "long-response@2"),
    ends("Roce_NeverReady", "[IBA 1] 9.7.5.2.8", "a client that never posts a receive does not stop the server", "rnr@2-"),
    ends("Roce_NeverAcknowledges", "[IBA 1] 9.7.6.1.3", "a client that never acknowledges does not stop the server", "no-ack@2-"),
    ends("Roce_DisconnectsAtOnce", "[IBA 1] 12.9.8", "a client that disconnects as soon as it is connected does not \
        stop the server", "cm-disconnect"),
    goes_on("Roce_CmLostReady", "[IBA 1] 12.9.7.2", "an RTU is lost: the first request stands in for it, or the REP is \
        sent again", "cm-silent@2"),
    ends("Roce_CmSilent", "[IBA 1] 12.9.8", "a client whose communication manager is silent after its REQ does not \
        stop the server", "cm-silent@2-"),
    goes_on("Roce_CmWrongId", "[IBA 1] 12.9.8.1", "an RTU for another connection has no effect on this one", "cm-wrong-id@2"),
    ends("Roce_CmRejectNoQp", "[IBA 1] 12.6.7.2", "a REP that is refused (no queue pair) does not stop the server", "cm-reject-no-qp"),
    ends("Roce_CmRejectNoEec", "[IBA 1] 12.6.7.2", "a REP that is refused (no end-to-end context) does not stop the \
        server", "cm-reject-no-eec"),
    ends("Roce_CmRejectResources", "[IBA 1] 12.6.7.2", "a REP that is refused (no resources) does not stop the server", "cm-reject-resources"),
    ends("Roce_CmRejectTimeout", "[IBA 1] 12.6.7.2", "a REP that is refused (too late) does not stop the server", "cm-reject-timeout"),
    ends("Roce_CmRejectUnsupported", "[IBA 1] 12.6.7.2", "a REP that is refused (a request that it does not know) does \
        not stop the server", "cm-reject-unsupported"),
    ends("Roce_CmRejectCommId", "[IBA 1] 12.6.7.2", "a REP that is refused (an unknown communication identifier) does \
        not stop the server", "cm-reject-comm-id"),
    ends("Roce_CmRejectCommInstance", "[IBA 1] 12.6.7.2", "a REP that is refused (an unknown communication instance) \
        does not stop the server", "cm-reject-comm-instance"),
    ends("Roce_CmRejectService", "[IBA 1] 12.6.7.2", "a REP that is refused (no such service) does not stop the server", "cm-reject-service"),
    ends("Roce_CmRejectTransport", "[IBA 1] 12.6.7.2", "a REP that is refused (the transport service type) does not \
        stop the server", "cm-reject-transport"),
    ends("Roce_CmRejectStale", "[IBA 1] 12.6.7.2", "a REP that is refused (the queue pair is known from before) does \
        not stop the server", "cm-reject-stale"),
    ends("Roce_CmRejectRdc", "[IBA 1] 12.6.7.2", "a REP that is refused (no such reliable datagram channel) does not \
        stop the server", "cm-reject-rdc"),
    ends("Roce_CmRejectGid", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's GID) does not stop the \
        server", "cm-reject-gid"),
    ends("Roce_CmRejectLid", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's LID) does not stop the \
        server", "cm-reject-lid"),
    ends("Roce_CmRejectSl", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's service level) does not \
        stop the server", "cm-reject-sl"),
    ends("Roce_CmRejectTrafficClass", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's traffic class) \
        does not stop the server", "cm-reject-traffic-class"),
    ends("Roce_CmRejectHopLimit", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's hop limit) does not \
        stop the server", "cm-reject-hop-limit"),
    ends("Roce_CmRejectPacketRate", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's packet rate) does \
        not stop the server", "cm-reject-packet-rate"),
    ends("Roce_CmRejectAlternateGid", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's GID) does not \
        stop the server", "cm-reject-alternate-gid"),
    ends("Roce_CmRejectAlternateLid", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's LID) does not \
        stop the server", "cm-reject-alternate-lid"),
    ends("Roce_CmRejectAlternateSl", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's service level) \
        does not stop the server", "cm-reject-alternate-sl"),
    ends("Roce_CmRejectAlternateTrafficClass", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's \
        traffic class) does not stop the server", "cm-reject-alternate-traffic-class"),
    ends("Roce_CmRejectAlternateHopLimit", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's hop limit) \
        does not stop the server", "cm-reject-alternate-hop-limit"),
    ends("Roce_CmRejectAlternatePacketRate", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's packet \
        rate) does not stop the server", "cm-reject-alternate-packet-rate"),
    ends("Roce_CmRejectPortAndCmRedirect", "[IBA 1] 12.6.7.2", "a REP that is refused (another port and manager are to \
        be asked) does not stop the server", "cm-reject-port-and-cm-redirect"),
    ends("Roce_CmRejectPortRedirect", "[IBA 1] 12.6.7.2", "a REP that is refused (another port is to be asked) does \
        not stop the server", "cm-reject-port-redirect"),
    ends("Roce_CmRejectMtu", "[IBA 1] 12.6.7.2", "a REP that is refused (the path MTU) does not stop the server", "cm-reject-mtu"),
    ends("Roce_CmRejectResponderResources", "[IBA 1] 12.6.7.2", "a REP that is refused (too few responder resources) \
        does not stop the server", "cm-reject-responder-resources"),
    ends("Roce_CmRejectConsumer", "[IBA 1] 12.6.7.2", "a REP that is refused (the program does not want it) does not \
        stop the server", "cm-reject-consumer"),
    ends("Roce_CmRejectRnrRetry", "[IBA 1] 12.6.7.2", "a REP that is refused (the RNR retry count) does not stop the \
        server", "cm-reject-rnr-retry"),
    ends("Roce_CmRejectDuplicateCommId", "[IBA 1] 12.6.7.2", "a REP that is refused (the communication identifier is \
        in use) does not stop the server", "cm-reject-duplicate-comm-id"),
    ends("Roce_CmRejectClassVersion", "[IBA 1] 12.6.7.2", "a REP that is refused (the version of the class) does not \
        stop the server", "cm-reject-class-version"),
    ends("Roce_CmRejectFlowLabel", "[IBA 1] 12.6.7.2", "a REP that is refused (the primary path's flow label) does not \
        stop the server", "cm-reject-flow-label"),
    ends("Roce_CmRejectAlternateFlowLabel", "[IBA 1] 12.6.7.2", "a REP that is refused (the alternate path's flow \
        label) does not stop the server", "cm-reject-alternate-flow-label"),
    ends("Roce_CmRejectVendor", "[IBA 1] 12.6.7.2", "a REP that is refused (an option of a vendor) does not stop the \
        server", "cm-reject-vendor"),
];
