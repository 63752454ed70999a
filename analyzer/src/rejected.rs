//! Reasons for which a connection request is rejected: what each means, and what to do about it (IBA volume 1,
//! 12.6.7.2).

use alloc::string::ToString;
use rdmascope_dissector::wire::ib::cm::RejectReason;

/// A reason, its meaning, and advice if that of the rule does not fit.
struct Row(RejectReason, &'static str, Option<&'static str>);

const ROWS: &[Row] = &[
    Row(RejectReason::NO_QP, NO_ROOM, Some(MAKE_ROOM)),
    Row(RejectReason::NO_RESOURCES, NO_ROOM, Some(MAKE_ROOM)),
    Row(
        RejectReason::TIMEOUT,
        "The side that rejects waited in vain for the next message of the handshake",
        Some("Find out why that message did not arrive: packets lost on the path, or a host too busy to answer."),
    ),
    Row(
        RejectReason::INVALID_COMM_ID,
        "The side that rejects no longer knows this attempt: it was restarted, or had given up",
        Some("Let the client try again. If it stays so, look into the log of the side that rejects for a restart."),
    ),
    Row(
        RejectReason::STALE_CONNECTION,
        "The server still has an earlier connection of the same queue pair, which was not ended in order",
        Some(
            "Let the client try again: the server ends the old connection now. Find out why that was not ended in order: a \
            client that crashed, or a disconnect request that was lost.",
        ),
    ),
    Row(
        RejectReason::PRIMARY_GID,
        "The server's RDMA device does not have the address (GID) that was asked for, or not for that RoCE version",
        Some(
            "Compare the address in the REQ with those of the server's RDMA device (rdma link, \
            /sys/class/infiniband/*/ports/*/gids), and the RoCE version of both hosts.",
        ),
    ),
    Row(
        RejectReason::PATH_MTU,
        "The server's port does not support the path MTU that the client asks for",
        Some("Compare active_mtu of both hosts (ibv_devinfo), which follows from the MTU of their interfaces."),
    ),
    Row(
        RejectReason::INSUFFICIENT_RESPONDER_RESOURCES,
        "A side supports fewer outstanding RDMA Reads than the other one asks for",
        Some(
            "Compare the responder resources and the initiator depth in the REQ and the REP with max_qp_rd_atom of both \
            devices (ibv_devinfo -v).",
        ),
    ),
    Row(RejectReason::CONSUMER, REFUSED, Some(READ_THE_LOG)),
    Row(
        RejectReason::RNR_RETRY_COUNT,
        "The RNR retry count that was asked for is not accepted",
        Some("Compare the RNR retry count in the REQ with what the service on the other side demands."),
    ),
    Row(RejectReason::UNSUPPORTED, UNSUPPORTED, Some(COMPARE)),
    Row(RejectReason::INVALID_TRANSPORT_TYPE, UNSUPPORTED, Some(COMPARE)),
    Row(RejectReason::CLASS_VERSION, UNSUPPORTED, Some(COMPARE)),
    Row(RejectReason::VENDOR_OPTION, UNSUPPORTED, Some(COMPARE)),
    Row(RejectReason::INVALID_COMM_INSTANCE, CONFUSED, Some(TRY_AGAIN)),
    Row(RejectReason::DUPLICATE_COMM_ID, CONFUSED, Some(TRY_AGAIN)),
    Row(RejectReason::PORT_REDIRECT, REDIRECTED, Some(FOLLOW)),
    Row(RejectReason::PORT_AND_CM_REDIRECT, REDIRECTED, Some(FOLLOW)),
    Row(RejectReason::PRIMARY_LID, PATH, Some(COMPARE_PATH)),
    Row(RejectReason::PRIMARY_SL, PATH, Some(COMPARE_PATH)),
    Row(RejectReason::PRIMARY_TRAFFIC_CLASS, PATH, Some(COMPARE_PATH)),
    Row(RejectReason::PRIMARY_HOP_LIMIT, PATH, Some(COMPARE_PATH)),
    Row(RejectReason::PRIMARY_PACKET_RATE, PATH, Some(COMPARE_PATH)),
    Row(RejectReason::PRIMARY_FLOW_LABEL, PATH, Some(COMPARE_PATH)),
    Row(RejectReason::INVALID_SERVICE_ID, NOTHING_LISTENS, None),
];

const NO_ROOM: &str = "The adapter of the side that rejects has no queue pair or memory left for another connection";
const MAKE_ROOM: &str = "Count the queue pairs in use on the side that rejects (rdma resource show), and end connections \
    that nobody uses.";
/// Meaning of a rejection by the service itself. MPA has this one alone.
pub(crate) const REFUSED: &str = "The service listens on that port, and refused this client: it has no resources left, or does \
    not accept the address or private data";
const CLIENT_REFUSED: &str = "The client itself rejects what the server answered: it had given up, or does not accept the \
    private data of the answer";
const READ_ITS_LOG: &str =
    "Read the log of the client: it asked for the connection, and knows why it refused the answer.";
const READ_THE_LOG: &str =
    "Read the log of the service on the side that rejects: it listens, and knows why it refused.";
const UNSUPPORTED: &str = "The side that rejects does not support this kind of request or transport service";
const COMPARE: &str = "Compare the transport service and the version in the REQ with what the other side supports.";
const CONFUSED: &str =
    "The two sides do not mean the same attempt: a communication ID is in use twice, or is not valid";
const TRY_AGAIN: &str = "Let the client try again. If it stays so, compare the communication IDs of its requests: one \
    that is in use twice is the fault of the side that chose it.";
const REDIRECTED: &str = "The service is to be asked for at another port, which the rejection names";
const FOLLOW: &str = "Ask at the port that the REJ names: a client that does not follow needs that address itself.";
const PATH: &str = "A value of the path in the REQ is not valid for the port of the side that rejects";
const COMPARE_PATH: &str =
    "Compare the path in the REQ with the port of the side that rejects (rdma link, ibv_devinfo -v).";
const NOTHING_LISTENS: &str = "Nothing listens on that RDMA port at that address";
const OTHER: &str = "Its reason is about something else than the service that was asked for: see the REJ itself";
const LOOK_IT_UP: &str = "Look the reason up in IBTA Vol 1 12.6.7.2, and the additional information in the REJ.";

/// Meaning of a reason; `by_server` if the side that was asked rejects, and not the one that asked and rejects the answer.
pub(crate) fn why(reason: RejectReason, by_server: bool) -> &'static str {
    let is_of_the_server = [
        RejectReason::INVALID_SERVICE_ID,
        RejectReason::STALE_CONNECTION,
        RejectReason::PRIMARY_GID,
        RejectReason::PATH_MTU,
    ];
    if !by_server && reason == RejectReason::CONSUMER {
        return CLIENT_REFUSED;
    }
    if !by_server && is_of_the_server.contains(&reason) {
        return OTHER;
    }
    ROWS.iter().find(|Row(known, ..)| *known == reason).map_or(OTHER, |Row(_, why, _)| *why)
}

/// Meaning of a reason by its name, if it says more than that no service listens.
pub(crate) fn why_named(name: &str) -> Option<&'static str> {
    if name == RejectReason::INVALID_SERVICE_ID.to_string() {
        return None;
    }
    Some(ROWS.iter().find(|Row(known, ..)| known.to_string() == name).map_or(OTHER, |Row(_, why, _)| *why))
}

/// Advice for a cause, if it is one of these.
pub(crate) fn cure(why: &str) -> Option<&'static str> {
    match why {
        OTHER => return Some(LOOK_IT_UP),
        CLIENT_REFUSED => return Some(READ_ITS_LOG),
        _ => {}
    }
    ROWS.iter().find(|Row(_, known, _)| *known == why).and_then(|Row(.., cure)| *cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_meaning_and_its_advice() {
        let told = |reason: RejectReason| (why(reason, true), cure(why(reason, true)));
        assert_eq!(told(RejectReason::CONSUMER), (REFUSED, Some(READ_THE_LOG)));
        assert_eq!(told(RejectReason::NO_RESOURCES), (NO_ROOM, Some(MAKE_ROOM)));
        assert_eq!(told(RejectReason::INVALID_SERVICE_ID), (NOTHING_LISTENS, None), "that of the rule fits");
        assert_eq!(told(RejectReason(999)), (OTHER, Some(LOOK_IT_UP)));
        let named = |reason: RejectReason| why_named(&reason.to_string());
        assert_eq!(named(RejectReason::STALE_CONNECTION), Some(why(RejectReason::STALE_CONNECTION, true)));
        assert_eq!([named(RejectReason::INVALID_SERVICE_ID), named(RejectReason(999))], [None, Some(OTHER)]);
        let by_client = |reason: RejectReason| why(reason, false);
        assert_eq!([RejectReason::CONSUMER, RejectReason::STALE_CONNECTION].map(by_client), [CLIENT_REFUSED, OTHER]);
        assert_eq!([cure(CLIENT_REFUSED), cure("anything else")], [Some(READ_ITS_LOG), None]);
    }
}
