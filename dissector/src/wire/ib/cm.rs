//! The communication manager: how queue pairs are connected, refused and taken down. IBA volume 1, 12.6 and 12.11; the
//! RDMA-CM's addresses in the private data annex A11; RFC 8797 for NFS. Big-endian.
//!
//! ```text
//! active ── ConnectRequest ──▶ passive         service and port, QPN, PSN, IRD/ORD, path MTU, addresses
//! active ◀── ConnectReply ──── passive         QPN, PSN, IRD/ORD    (or ConnectReject with a reason; MRA: wait)
//! active ── ReadyToUse ──────▶ passive
//! either ── DisconnectRequest ▶ either ── DisconnectReply ─▶
//! ```
//!
//! Communication identifiers name the connection: each side's local one is the other's remote one.

use super::mad::{self, Mad};
use crate::address::Addr;
use crate::fault::PResult;
use crate::field::Def;
use crate::header::Vec;
use crate::leaf::{self, read};
use crate::trace::{Trace, Value, scope};

wire_enum! {
    /// The messages, by attribute of their management datagram (IBA volume 1, table 106).
    pub enum Attribute: u16 {
        CONNECT_REQUEST = 0x0010, "ConnectRequest";
        MSG_RCPT_ACK = 0x0011, "MsgRcptAck";
        CONNECT_REJECT = 0x0012, "ConnectReject";
        CONNECT_REPLY = 0x0013, "ConnectReply";
        READY_TO_USE = 0x0014, "ReadyToUse";
        DISCONNECT_REQUEST = 0x0015, "DisconnectRequest";
        DISCONNECT_REPLY = 0x0016, "DisconnectReply";
        SERVICE_ID_RES_REQ = 0x0017, "ServiceIDResReq";
        SERVICE_ID_RES_REP = 0x0018, "ServiceIDResReqResp";
        LOAD_ALTERNATE_PATH = 0x0019, "LoadAlternatePath";
        ALTERNATE_PATH_RESPONSE = 0x001a, "AlternatePathResponse";
    }
}

wire_enum! {
    /// Reason of a rejected connection request (IBA volume 1, 12.6.7.2).
    pub enum RejectReason: u16 {
        NO_QP = 1, "No QP available";
        NO_EEC = 2, "No EEC available";
        NO_RESOURCES = 3, "No resources available";
        TIMEOUT = 4, "Timeout";
        UNSUPPORTED = 5, "Unsupported request";
        INVALID_COMM_ID = 6, "Invalid communication ID";
        INVALID_COMM_INSTANCE = 7, "Invalid communication instance";
        INVALID_SERVICE_ID = 8, "Invalid service ID";
        INVALID_TRANSPORT_TYPE = 9, "Invalid transport service type";
        STALE_CONNECTION = 10, "Stale connection";
        RDC_NOT_EXIST = 11, "RDC does not exist";
        PRIMARY_GID = 12, "Primary remote port GID rejected";
        PRIMARY_LID = 13, "Primary remote port LID rejected";
        PRIMARY_SL = 14, "Invalid primary SL";
        PRIMARY_TRAFFIC_CLASS = 15, "Invalid primary traffic class";
        PRIMARY_HOP_LIMIT = 16, "Invalid primary hop limit";
        PRIMARY_PACKET_RATE = 17, "Invalid primary packet rate";
        ALTERNATE_GID = 18, "Alternate remote port GID rejected";
        ALTERNATE_LID = 19, "Alternate remote port LID rejected";
        ALTERNATE_SL = 20, "Invalid alternate SL";
        ALTERNATE_TRAFFIC_CLASS = 21, "Invalid alternate traffic class";
        ALTERNATE_HOP_LIMIT = 22, "Invalid alternate hop limit";
        ALTERNATE_PACKET_RATE = 23, "Invalid alternate packet rate";
        PORT_AND_CM_REDIRECT = 24, "Port and CM redirection";
        PORT_REDIRECT = 25, "Port redirection";
        PATH_MTU = 26, "Invalid path MTU";
        INSUFFICIENT_RESPONDER_RESOURCES = 27, "Insufficient responder resources";
        CONSUMER = 28, "Consumer reject";
        RNR_RETRY_COUNT = 29, "RNR retry count reject";
        DUPLICATE_COMM_ID = 30, "Duplicate local communication ID";
        CLASS_VERSION = 31, "Unsupported class version";
        PRIMARY_FLOW_LABEL = 32, "Invalid primary flow label";
        ALTERNATE_FLOW_LABEL = 33, "Invalid alternate flow label";
        VENDOR_OPTION = 35, "Vendor option not supported";
    }
}

const MTUS: crate::field::Values =
    &[(1, "256 bytes"), (2, "512 bytes"), (3, "1024 bytes"), (4, "2048 bytes"), (5, "4096 bytes")];
const SERVICES: crate::field::Values = &[(0, "RC"), (1, "UC"), (2, "RD"), (3, "XRC")];
const REJECTED: crate::field::Values = &[(0, "ConnectRequest"), (1, "ConnectReply"), (2, "No message")];
const ACKNOWLEDGED: crate::field::Values = &[(0, "ConnectRequest"), (1, "ConnectReply"), (2, "LoadAlternatePath")];
const SIDR_STATUS: crate::field::Values = &[
    (0, "Valid QPN and Q_Key"),
    (1, "Service ID not supported"),
    (2, "Rejected by service provider"),
    (3, "No QP available"),
    (4, "Redirect to other CM"),
    (5, "Unsupported version"),
];
const APR_STATUS: crate::field::Values = &[
    (0, "Alternate path loaded"),
    (1, "Invalid communication identification"),
    (2, "Alternate paths not supported"),
    (3, "Failover port rejected"),
    (4, "Redirect"),
    (5, "Alternate path not different from primary"),
    (6, "QPN or EECN mismatch"),
    (7, "Proposed path rejected"),
    (8, "Address resolution failed"),
    (9, "Proposed alternate path rejected"),
];

fields! {
    /// Subtrees, service identifiers, addresses and private data.
    pub mod f ["IBA Vol 1, 12.6"] {
        MESSAGE: None = "rdmascope.infiniband.cm", "CM";
        RESERVED: Bytes as Keep = "infiniband.reserved", "Reserved";
        SERVICE_ID: U64 = "infiniband.cm.req.serviceid", "ServiceID", hex;
        SERVICE_PREFIX: Bytes as Keep = "infiniband.cm.req.serviceid.prefix", "Prefix";
        SERVICE_PROTOCOL: U8 = "infiniband.cm.req.serviceid.protocol", "Protocol", hex, values &[(0x06, "TCP"), (0x11, "UDP"), (0x3f, "InfiniBand")];
        SERVICE_PORT: U16 = "infiniband.cm.req.serviceid.dport", "Destination Port", hex;
        PRIM_LOCAL_GID: Ipv6 = "infiniband.cm.req.prim_localgid", "Primary Local Port GID";
        PRIM_REMOTE_GID: Ipv6 = "infiniband.cm.req.prim_remotegid", "Primary Remote Port GID";
        PRIM_LOCAL_GID_IPV4: Ipv4 = "infiniband.cm.req.prim_localgid_ipv4", "Primary Local Port GID";
        PRIM_REMOTE_GID_IPV4: Ipv4 = "infiniband.cm.req.prim_remotegid_ipv4", "Primary Remote Port GID";
        REQ_PRIVATE: Bytes = "infiniband.cm.req.private", "PrivateData";
        IP_CM: Bytes = "infiniband.cm.req.ip_cm", "IP CM Private Data";
        SIP6: Ipv6 = "infiniband.cm.req.ip_cm.sip6", "IP CM Source IP";
        DIP6: Ipv6 = "infiniband.cm.req.ip_cm.dip6", "IP CM Destination IP";
        SIP4: Ipv4 = "infiniband.cm.req.ip_cm.sip4", "IP CM Source IP";
        DIP4: Ipv4 = "infiniband.cm.req.ip_cm.dip4", "IP CM Destination IP";
        IP_CM_PRIVATE: Bytes = "infiniband.cm.req.ip_cm.private", "IP CM Consumer PrivateData";
        REP_PRIVATE: Bytes = "infiniband.cm.rep.private", "PrivateData";
        RTU_PRIVATE: Bytes = "infiniband.cm.rtu.private", "PrivateData";
        REJ_ARI: Bytes = "infiniband.cm.rej.ari", "Additional Reject Information (ARI)";
        REJ_PRIVATE: Bytes = "infiniband.cm.rej.private", "PrivateData";
        MRA_PRIVATE: Bytes = "rdmascope.infiniband.cm.mra.private", "PrivateData";
        DREQ_PRIVATE: Bytes = "infiniband.cm.dreq.private", "PrivateData";
        DREP_PRIVATE: Bytes = "infiniband.cm.drsp.private", "PrivateData";
        LAP_PRIVATE: Bytes = "rdmascope.infiniband.cm.lap.private", "PrivateData";
        APR_INFO: Bytes = "rdmascope.infiniband.cm.apr.info", "Additional Information";
        APR_PRIVATE: Bytes = "rdmascope.infiniband.cm.apr.private", "PrivateData";
        SIDR_INFO: Bytes = "rdmascope.infiniband.cm.sidr_rep.info", "Additional Information";
        SIDR_REQ_PRIVATE: Bytes = "rdmascope.infiniband.cm.sidr_req.private", "PrivateData";
        SIDR_REP_PRIVATE: Bytes = "rdmascope.infiniband.cm.sidr_rep.private", "PrivateData";
    }
}

header! {
    /// A Connect Request behind its service identifier, up to the primary path's GIDs.
    pub struct RequestHead [NODE = "rdmascope.infiniband.cm.req.head", "ConnectRequest", "IBA Vol 1, 12.6.5"] {
        local_ca_guid: be64 as Mac = "infiniband.cm.req.localcaguid", "Local CA GUID", hex;
        reserved: bytes[4] as Keep = "infiniband.reserved", "Reserved";
        local_q_key: be32 = "infiniband.cm.req.localqkey", "Local Q_Key", hex;
        local_qpn: be24 = "infiniband.cm.req.localqpn", "Local QPN", hex;
        /// RDMA Reads and atomics that the sender can answer at a time.
        responder_resources: u8 = "infiniband.cm.req.responderres", "Responder Resources", hex;
        local_eecn: be24 = "infiniband.cm.req.localeecn", "Local EECN", hex;
        /// RDMA Reads and atomics that the sender will have outstanding.
        initiator_depth: u8 = "infiniband.cm.req.initdepth", "Initiator Depth", hex;
        remote_eecn: be24 = "infiniband.cm.req.remoteeecn", "Remote EECN", hex;
        service: u8 = "_", "Service", hex, bits {
            remote_response_timeout: u8 & 0xf8 = "infiniband.cm.req.remoteresptout", "Remote CM Response Timeout", hex;
            transport: u8 & 0x06 = "infiniband.cm.req.transpsvctype", "Transport Service Type", hex, values SERVICES;
            end_to_end_flow_control: u8 & 0x01 = "infiniband.cm.req.e2eflowctrl", "End-to-End Flow Control", hex;
        };
        /// The number of the first packet that the receiver of this is to send.
        starting_psn: be24 = "infiniband.cm.req.startpsn", "Starting PSN", hex;
        retries: u8 = "_", "Retries", hex, bits {
            local_response_timeout: u8 & 0xf8 = "infiniband.cm.req.localresptout", "Local CM Response Timeout", hex;
            retry_count: u8 & 0x07 = "infiniband.cm.req.retrcount", "Retry Count", hex;
        };
        p_key: be16 = "infiniband.cm.req.pkey", "Partition Key", hex;
        mtu: u8 = "_", "Path MTU", hex, bits {
            path_mtu_code: u8 & 0xf0 = "infiniband.cm.req.pppmtu", "Path Packet Payload MTU", hex, values MTUS;
            rdc_exists: u8 & 0x08 = "infiniband.cm.req.rdcexist", "RDC Exists", hex;
            rnr_retry_count: u8 & 0x07 = "infiniband.cm.req.rnrretrcount", "RNR Retry Count", hex;
        };
        cm: u8 = "_", "CM", hex, bits {
            max_cm_retries: u8 & 0xf0 = "infiniband.cm.req.maxcmretr", "Max CM Retries", hex;
            srq: u8 & 0x08 = "infiniband.cm.req.srq", "SRQ", hex;
            extended_transport: u8 & 0x07 = "infiniband.cm.req.ext_transport", "Extended Transport", hex;
        };
        local_lid: be16 = "infiniband.cm.req.prim_locallid", "Primary Local Port LID", dec;
        remote_lid: be16 = "infiniband.cm.req.prim_remotelid", "Primary Remote Port LID", dec;
    }
}

header! {
    /// The rest of a Connect Request's primary path.
    pub struct PrimaryPath [NODE = "rdmascope.infiniband.cm.req.primary", "Primary path", "IBA Vol 1, 12.6.5"] {
        flow: be32 = "_", "Flow", hex, bits {
            flow_label: u32 & 0xfffff000 = "infiniband.cm.req.prim_flowlabel", "Primary Flow Label", hex;
            reserved0: u32 & 0x00000fc0 = "infiniband.cm.req.prim_reserved0", "Reserved", hex;
            packet_rate: u32 & 0x0000003f = "infiniband.cm.req.prim_pktrate", "Primary Packet Rate", hex;
        };
        traffic_class: u8 = "infiniband.cm.req.prim_tfcclass", "Primary Traffic Class", hex;
        hop_limit: u8 = "infiniband.cm.req.prim_hoplim", "Primary Hop Limit", hex;
        level: u8 = "_", "Level", hex, bits {
            service_level: u8 & 0xf0 = "infiniband.cm.req.prim_sl", "Primary SL", hex;
            subnet_local: u8 & 0x08 = "infiniband.cm.req.prim_subnetlocal", "Primary Subnet Local", hex;
            reserved1: u8 & 0x07 = "infiniband.cm.req.prim_reserved1", "Reserved", hex;
        };
        timeout: u8 = "_", "Timeout", hex, bits {
            local_ack_timeout: u8 & 0xf8 = "infiniband.cm.req.prim_localacktout", "Primary Local ACK Timeout", hex;
            reserved2: u8 & 0x07 = "infiniband.cm.req.prim_reserved2", "Reserved", hex;
        };
    }
}

header! {
    /// A Connect Request's alternate path.
    pub struct AlternatePath [NODE = "rdmascope.infiniband.cm.req.alternate", "Alternate path", "IBA Vol 1, 12.6.5"] {
        local_lid: be16 = "infiniband.cm.req.alt_locallid", "Alternate Local Port LID", dec;
        remote_lid: be16 = "infiniband.cm.req.alt_remotelid", "Alternate Remote Port LID", dec;
        local_gid: bytes[16] as Address = "infiniband.cm.req.alt_localgid", "Alternate Local Port GID";
        remote_gid: bytes[16] as Address = "infiniband.cm.req.alt_remotegid", "Alternate Remote Port GID";
        flow: be32 = "_", "Flow", hex, bits {
            flow_label: u32 & 0xfffff000 = "infiniband.cm.req.alt_flowlabel", "Alternate Flow Label", hex;
            reserved0: u32 & 0x00000fc0 = "infiniband.cm.req.alt_reserved0", "Reserved", hex;
            packet_rate: u32 & 0x0000003f = "infiniband.cm.req.alt_pktrate", "Alternate Packet Rate", hex;
        };
        traffic_class: u8 = "infiniband.cm.req.alt_tfcclass", "Alternate Traffic Class", hex;
        hop_limit: u8 = "infiniband.cm.req.alt_hoplim", "Alternate Hop Limit", hex;
        level: u8 = "_", "Level", hex, bits {
            service_level: u8 & 0xf0 = "infiniband.cm.req.alt_sl", "Alternate SL", hex;
            subnet_local: u8 & 0x08 = "infiniband.cm.req.alt_subnetlocal", "Alternate Subnet Local", hex;
            reserved1: u8 & 0x07 = "infiniband.cm.req.alt_reserved1", "Reserved", hex;
        };
        timeout: u8 = "_", "Timeout", hex, bits {
            local_ack_timeout: u8 & 0xf8 = "infiniband.cm.req.alt_localacktout", "Alternate Local ACK Timeout", hex;
            reserved2: u8 & 0x07 = "infiniband.cm.req.alt_reserved1", "Reserved", hex;
        };
    }
}

header! {
    /// The beginning of a Connect Request.
    pub struct RequestIds [NODE = "rdmascope.infiniband.cm.req.ids", "Identifiers", "IBA Vol 1, 12.6.5"] {
        local_comm_id: be32 = "infiniband.cm.req", "Local Communication ID", hex;
        reserved: bytes[4] as Keep = "infiniband.reserved", "Reserved";
    }
}

header! {
    /// The beginning of the RDMA-CM's private data in a Connect Request.
    pub struct IpCm [NODE = "rdmascope.infiniband.cm.req.ip_cm.head", "Versions and port", "IBA Vol 1, annex A11"] {
        version: u8 = "_", "Version", hex, bits {
            major_version: u8 & 0xf0 = "infiniband.cm.req.ip_cm.majv", "IP CM Major Version", hex;
            minor_version: u8 & 0x0f = "infiniband.cm.req.ip_cm.minv", "IP CM Minor Version", hex;
        };
        ip: u8 = "_", "IP", hex, bits {
            ip_version: u8 & 0xf0 = "infiniband.cm.req.ip_cm.ipv", "IP CM IP Version", hex;
            reserved: u8 & 0x0f = "infiniband.cm.req.ip_cm.reserved", "IP CM Reserved", hex;
        };
        source_port: be16 = "infiniband.cm.req.ip_cm.sport", "IP CM Source Port", hex;
    }
}

header! {
    /// Accepts a connection.
    pub struct ReplyHead [NODE = "rdmascope.infiniband.cm.rep.head", "ConnectReply", "IBA Vol 1, 12.6.8"] {
        local_comm_id: be32 = "infiniband.cm.rep", "Local Communication ID", hex;
        remote_comm_id: be32 = "infiniband.cm.rep.remotecommid", "Remote Communication ID", hex;
        local_q_key: be32 = "infiniband.cm.rep.localqkey", "Local Q_Key", hex;
        local_qpn: be24 = "infiniband.cm.rep.localqpn", "Local QPN", hex;
        reserved0: bytes[1] as Keep = "infiniband.reserved", "Reserved";
        local_eecn: be24 = "infiniband.cm.rep.localeecn", "Local EE Context Number", hex;
        reserved1: bytes[1] as Keep = "infiniband.reserved", "Reserved";
        /// The number of the first packet that the receiver of this is to send.
        starting_psn: be24 = "infiniband.cm.rep.startpsn", "Starting PSN", hex;
        reserved2: bytes[1] as Keep = "infiniband.reserved", "Reserved";
        responder_resources: u8 = "infiniband.cm.rep.respres", "Responder Resources", hex;
        initiator_depth: u8 = "infiniband.cm.rep.initdepth", "Initiator Depth", hex;
        flow: u8 = "_", "Flow", hex, bits {
            target_ack_delay: u8 & 0xf8 = "infiniband.cm.rep.tgtackdelay", "Target ACK Delay", hex;
            failover_accepted: u8 & 0x06 = "infiniband.cm.rep.failoveracc", "Failover Accepted", hex;
            end_to_end_flow_control: u8 & 0x01 = "infiniband.cm.rep.e2eflowctrl", "End-To-End Flow Control", hex;
        };
        retries: u8 = "_", "Retries", hex, bits {
            rnr_retry_count: u8 & 0xe0 = "infiniband.cm.rep.rnrretrcount", "RNR Retry Count", hex;
            srq: u8 & 0x10 = "infiniband.cm.rep.srq", "SRQ", hex;
            reserved: u8 & 0x0f = "infiniband.cm.rep.reserved", "Reserved", hex;
        };
        local_ca_guid: be64 as Mac = "infiniband.cm.rep.localcaguid", "Local CA GUID", hex;
    }
}

header! {
    /// Completes the handshake.
    pub struct ReadyHead [NODE = "rdmascope.infiniband.cm.rtu.head", "ReadyToUse", "IBA Vol 1, 12.6.9"] {
        local_comm_id: be32 = "infiniband.cm.rtu.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "infiniband.cm.rtu.remotecommid", "Remote Communication ID", hex;
    }
}

header! {
    /// Refuses a connection.
    pub struct RejectHead [NODE = "rdmascope.infiniband.cm.rej.head", "ConnectReject", "IBA Vol 1, 12.6.7"] {
        local_comm_id: be32 = "infiniband.cm.rej.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "infiniband.cm.rej.remotecommid", "Remote Communication ID", hex;
        what: u8 = "_", "Message", hex, bits {
            rejected: u8 & 0xc0 = "infiniband.cm.rej.msgrej", "Message REJected", hex, values REJECTED;
            reserved0: u8 & 0x03 = "infiniband.cm.rej.reserved0", "Reserved", hex;
        };
        length: u8 = "_", "Length", hex, bits {
            info_length: u8 & 0xfe = "infiniband.cm.rej.rejinfolen", "Reject Info Length", hex;
            reserved1: u8 & 0x01 = "infiniband.cm.rej.reserved1", "Reserved", hex;
        };
        reason: be16 = "infiniband.cm.rej.reason", "Reason", hex, values RejectReason::VALUES;
    }
}

header! {
    /// Asks for patience: the message was received, the answer takes time.
    pub struct ReceiptHead [NODE = "rdmascope.infiniband.cm.mra.head", "MsgRcptAck", "IBA Vol 1, 12.6.6"] {
        local_comm_id: be32 = "rdmascope.infiniband.cm.mra.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "rdmascope.infiniband.cm.mra.remotecommid", "Remote Communication ID", hex;
        what: u8 = "_", "Message", hex, bits {
            acknowledged: u8 & 0xc0 = "rdmascope.infiniband.cm.mra.msgmraed", "Message MRAed", hex, values ACKNOWLEDGED;
        };
        timeout: u8 = "_", "Timeout", hex, bits {
            service_timeout: u8 & 0xf8 = "rdmascope.infiniband.cm.mra.servicetimeout", "Service Timeout", hex;
        };
    }
}

header! {
    /// Takes a connection down.
    pub struct DisconnectHead [NODE = "rdmascope.infiniband.cm.dreq.head", "DisconnectRequest", "IBA Vol 1, 12.6.10"] {
        local_comm_id: be32 = "infiniband.cm.dreq.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "infiniband.cm.dreq.remotecommid", "Remote Communication ID", hex;
        remote_qpn: be24 = "infiniband.cm.req.remoteqpneecn", "Remote QPN/EECN", hex;
        reserved: bytes[1] as Keep = "infiniband.reserved", "Reserved";
    }
}

header! {
    /// Answers a Disconnect Request.
    pub struct DisconnectReplyHead [NODE = "rdmascope.infiniband.cm.drsp.head", "DisconnectReply", "IBA Vol 1, 12.6.11"] {
        local_comm_id: be32 = "infiniband.cm.drsp.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "infiniband.cm.drsp.remotecommid", "Remote Communication ID", hex;
    }
}

header! {
    /// Proposes an alternate path.
    pub struct LoadPath [NODE = "rdmascope.infiniband.cm.lap.head", "LoadAlternatePath", "IBA Vol 1, 12.8.1"] {
        local_comm_id: be32 = "rdmascope.infiniband.cm.lap.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "rdmascope.infiniband.cm.lap.remotecommid", "Remote Communication ID", hex;
        reserved0: bytes[4] as Keep = "infiniband.reserved", "Reserved";
        remote_qpn: be24 = "rdmascope.infiniband.cm.lap.remoteqpneecn", "Remote QPN/EECN", hex;
        timeout: u8 = "_", "Timeout", hex, bits {
            remote_response_timeout: u8 & 0xf8 = "rdmascope.infiniband.cm.lap.remoteresptout", "Remote CM Response \
                Timeout", hex;
        };
        reserved1: bytes[4] as Keep = "infiniband.reserved", "Reserved";
        local_lid: be16 = "rdmascope.infiniband.cm.lap.alt_locallid", "Alternate Local Port LID", dec;
        remote_lid: be16 = "rdmascope.infiniband.cm.lap.alt_remotelid", "Alternate Remote Port LID", dec;
        local_gid: bytes[16] as Address = "rdmascope.infiniband.cm.lap.alt_localgid", "Alternate Local Port GID";
        remote_gid: bytes[16] as Address = "rdmascope.infiniband.cm.lap.alt_remotegid", "Alternate Remote Port GID";
        flow: be32 = "_", "Flow", hex, bits {
            flow_label: u32 & 0xfffff000 = "rdmascope.infiniband.cm.lap.alt_flowlabel", "Alternate Flow Label", hex;
            traffic_class: u32 & 0x000000ff = "rdmascope.infiniband.cm.lap.alt_tfcclass", "Alternate Traffic Class", hex;
        };
        hop_limit: u8 = "rdmascope.infiniband.cm.lap.alt_hoplim", "Alternate Hop Limit", hex;
        rate: u8 = "_", "Rate", hex, bits {
            packet_rate: u8 & 0x3f = "rdmascope.infiniband.cm.lap.alt_pktrate", "Alternate Packet Rate", hex;
        };
        level: u8 = "_", "Level", hex, bits {
            service_level: u8 & 0xf0 = "rdmascope.infiniband.cm.lap.alt_sl", "Alternate SL", hex;
            subnet_local: u8 & 0x08 = "rdmascope.infiniband.cm.lap.alt_subnetlocal", "Alternate Subnet Local", hex;
        };
        ack: u8 = "_", "Timeout", hex, bits {
            local_ack_timeout: u8 & 0xf8 = "rdmascope.infiniband.cm.lap.alt_localacktout", "Alternate Local ACK Timeout", hex;
        };
    }
}

header! {
    /// Answers the proposal of an alternate path.
    pub struct PathResponse [NODE = "rdmascope.infiniband.cm.apr.head", "AlternatePathResponse", "IBA Vol 1, 12.8.2"] {
        local_comm_id: be32 = "rdmascope.infiniband.cm.apr.localcommid", "Local Communication ID", hex;
        remote_comm_id: be32 = "rdmascope.infiniband.cm.apr.remotecommid", "Remote Communication ID", hex;
        info_length: u8 = "rdmascope.infiniband.cm.apr.infolen", "Additional Information Length", dec;
        status: u8 = "rdmascope.infiniband.cm.apr.status", "AP Status", hex, values APR_STATUS;
        reserved: bytes[2] as Keep = "infiniband.reserved", "Reserved";
    }
}

header! {
    /// Asks for the queue pair of a datagram service; its service identifier and private data follow.
    pub struct SidrRequestHead [NODE = "rdmascope.infiniband.cm.sidr_req.head", "ServiceIDResReq", "IBA Vol 1, 12.11.1"] {
        request_id: be32 = "rdmascope.infiniband.cm.sidr_req.requestid", "Request ID", hex;
        p_key: be16 = "rdmascope.infiniband.cm.sidr_req.pkey", "Partition Key", hex;
        reserved: bytes[2] as Keep = "infiniband.reserved", "Reserved";
    }
}

header! {
    /// Names the queue pair of a datagram service, or says why not.
    pub struct SidrReplyHead [NODE = "rdmascope.infiniband.cm.sidr_rep.head", "ServiceIDResReqResp", "IBA Vol 1, 12.11.2"] {
        request_id: be32 = "rdmascope.infiniband.cm.sidr_rep.requestid", "Request ID", hex;
        status: u8 = "rdmascope.infiniband.cm.sidr_rep.status", "Status", hex, values SIDR_STATUS;
        info_length: u8 = "rdmascope.infiniband.cm.sidr_rep.infolen", "Additional Information Length", dec;
        reserved0: bytes[2] as Keep = "infiniband.reserved", "Reserved";
        qpn: be24 = "rdmascope.infiniband.cm.sidr_rep.qpn", "QPN", hex;
        reserved1: bytes[1] as Keep = "infiniband.reserved", "Reserved";
        service_id: be64 = "infiniband.cm.req.serviceid", "ServiceID", hex;
        q_key: be32 = "rdmascope.infiniband.cm.sidr_rep.qkey", "Q_Key", hex;
    }
}

header! {
    /// Private data of NFS in a connection request: RFC 8797.
    pub struct RpcRdmaPrivate [NODE = "rdmascope.rpcordma.private", "RPC-over-RDMA connection parameters", "RFC 8797 4"] {
        magic: be32 = "rdmascope.rpcordma.private.magic", "Format Identifier", hex;
        version: u8 = "rdmascope.rpcordma.private.version", "Version", dec;
        flags: u8 = "rdmascope.rpcordma.private.flags", "Flags", hex, bits {
            remote_invalidation: bool & 0x01 = "rdmascope.rpcordma.private.flags.remote_invalidation", "Remote Invalidation";
        };
        send_size_code: u8 = "rdmascope.rpcordma.private.send_size", "Send Buffer Size", dec;
        receive_size_code: u8 = "rdmascope.rpcordma.private.receive_size", "Receive Buffer Size", dec;
    }
}

impl RpcRdmaPrivate {
    /// Required value of [`RpcRdmaPrivate::magic`].
    pub const MAGIC: u32 = 0xf6ab_0e18;

    /// The longest message that the sender of this will send inline, in bytes.
    pub const fn send_size(&self) -> u32 {
        (self.send_size_code as u32 + 1) * 1024
    }

    /// The longest message that the sender of this can receive inline, in bytes.
    pub const fn receive_size(&self) -> u32 {
        (self.receive_size_code as u32 + 1) * 1024
    }

    /// Decodes it from the consumer's private data (of InfiniBand's CM or of MPA); `None` where the data is something
    /// else.
    pub fn find<T: Trace>(private: &[u8], t: &mut T) -> Option<Self> {
        if private.first_chunk::<4>().is_none_or(|magic| u32::from_be_bytes(*magic) != Self::MAGIC) {
            return None;
        }
        Self::parse(private, t).ok().map(|(_, found)| found)
    }
}

/// A service identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The identifier of a port of the RDMA-CM's port space for TCP (annex A11).
    pub const fn of_tcp(port: u16) -> Self {
        Self(0x0106_0000 | port as u64)
    }

    /// The port and its protocol (0x06 TCP, 0x11 UDP, 0x3f InfiniBand's own) where an IP port space has the identifier
    /// (annex A11: 0x0000000001, protocol, port).
    pub const fn port(self) -> Option<(u8, u16)> {
        if self.0 >> 24 == 1 { Some(((self.0 >> 16) as u8, self.0 as u16)) } else { None }
    }
}

/// The RDMA-CM's own part of the private data of a Connect Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Source port.
    pub source_port: u16,
    /// Address of the active side.
    pub src: Addr,
    /// Address of the passive side.
    pub dst: Addr,
}

/// A Connect Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// The sender's communication identifier.
    pub local_comm_id: u32,
    /// The service to connect to.
    pub service_id: ServiceId,
    /// Queue pair, PSN, depths, retries, path MTU.
    pub head: RequestHead,
    /// GID of the sender's port on the primary path.
    pub local_gid: [u8; 16],
    /// GID of the receiver's port on the primary path.
    pub remote_gid: [u8; 16],
    /// The rest of the primary path.
    pub primary: PrimaryPath,
    /// The alternate path; all zeros for none.
    pub alternate: AlternatePath,
    /// Addresses that the RDMA-CM adds.
    pub addresses: Option<Addresses>,
    /// RPC-over-RDMA's part of the private data (RFC 8797).
    pub rpc_rdma: Option<RpcRdmaPrivate>,
    /// The consumer's private data, behind the RDMA-CM's.
    pub private: &'a [u8],
}

impl ConnectRequest<'_> {
    /// The path MTU in bytes; `None` for a reserved code.
    pub fn path_mtu(&self) -> Option<u16> {
        match self.head.path_mtu_code() {
            code @ 1..=5 => Some(128 << code),
            _ => None,
        }
    }
}

/// A Connect Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectReply<'a> {
    /// Identifiers, queue pair, PSN, depths.
    pub head: ReplyHead,
    /// RPC-over-RDMA's part of the private data (RFC 8797).
    pub rpc_rdma: Option<RpcRdmaPrivate>,
    /// Private data.
    pub private: &'a [u8],
}

/// A Connect Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectReject<'a> {
    /// Identifiers and reason.
    pub head: RejectHead,
    /// Additional reject information: what would have been acceptable, by reason.
    pub info: &'a [u8],
    /// Private data.
    pub private: &'a [u8],
}

impl ConnectReject<'_> {
    /// The reason as its type.
    pub const fn reason(&self) -> RejectReason {
        RejectReason(self.head.reason)
    }
}

/// A message of the communication manager. Those whose private data nobody needs give their header alone.
// nearly all of the rare messages that are kept for a moment are requests
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CmMessage<'a> {
    Request(ConnectRequest<'a>),
    Reply(ConnectReply<'a>),
    ReadyToUse(ReadyHead),
    Reject(ConnectReject<'a>),
    MsgRcptAck(ReceiptHead),
    DisconnectRequest(DisconnectHead),
    DisconnectReply(DisconnectReplyHead),
    LoadAlternatePath(LoadPath),
    AlternatePathResponse(PathResponse),
    SidrRequest(SidrRequestHead, ServiceId),
    SidrReply(SidrReplyHead),
}

impl CmMessage<'_> {
    /// The sender's communication identifier and the receiver's, as far as the message has them. Datagram services have
    /// request identifiers instead.
    pub const fn comm_ids(&self) -> (Option<u32>, Option<u32>) {
        match self {
            Self::Request(m) => (Some(m.local_comm_id), None),
            Self::Reply(m) => (Some(m.head.local_comm_id), Some(m.head.remote_comm_id)),
            Self::ReadyToUse(m) => (Some(m.local_comm_id), Some(m.remote_comm_id)),
            Self::Reject(m) => (Some(m.head.local_comm_id), Some(m.head.remote_comm_id)),
            Self::MsgRcptAck(m) => (Some(m.local_comm_id), Some(m.remote_comm_id)),
            Self::DisconnectRequest(m) => (Some(m.local_comm_id), Some(m.remote_comm_id)),
            Self::DisconnectReply(m) => (Some(m.local_comm_id), Some(m.remote_comm_id)),
            Self::LoadAlternatePath(m) => (Some(m.local_comm_id), Some(m.remote_comm_id)),
            Self::AlternatePathResponse(m) => (Some(m.local_comm_id), Some(m.remote_comm_id)),
            Self::SidrRequest(..) | Self::SidrReply(_) => (None, None),
        }
    }
}

/// Value of a CM timeout code in nanoseconds: 4.096 µs times 2 to its power. `code` has 5 bits.
pub const fn timeout_nanos(code: u8) -> u64 {
    4096 << (code & 0x1f)
}

/// Decodes a management datagram, the payload of a packet to queue pair 0 or 1: the message where it is one of the
/// communication manager's, `None` where it is of another class or attribute.
pub fn parse_mad<'a, T: Trace>(payload: &'a [u8], t: &mut T) -> PResult<'a, Option<CmMessage<'a>>> {
    let (i, header) = Mad::parse(payload, t)?;
    let attribute = Attribute(header.attribute_id);
    if header.class != mad::CLASS_CM || attribute.name().is_none() {
        let (i, ()) = mad::parse_data(&header, i, t)?;
        return Ok((i, None));
    }
    let (i, message) = scope(f::MESSAGE, i, t, |i, t| {
        t.label(format_args!(" {attribute}"));
        t.info(format_args!("CM {attribute}"));
        message(attribute, i, t)
    })?;
    Ok((i, Some(message)))
}

/// A whole management datagram with a message. What it has no room for is cut off.
pub fn datagram(attribute: Attribute, transaction_id: u64, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(mad::LEN);
    Mad {
        base_version: 1,
        class: mad::CLASS_CM,
        class_version: 2,
        method: 3,
        status: 0,
        class_specific: 0,
        transaction_id,
        attribute_id: attribute.0,
        reserved: [0; 2],
        attribute_modifier: 0,
    }
    .emit(&mut out);
    out.extend_from_slice(message.get(..mad::LEN - Mad::LEN).unwrap_or(message));
    out.resize(mad::LEN, 0);
    out
}

fn message<'a, T: Trace>(attribute: Attribute, i: &'a [u8], t: &mut T) -> PResult<'a, CmMessage<'a>> {
    Ok(match attribute {
        Attribute::CONNECT_REQUEST => {
            let (i, request) = request(i, t)?;
            (i, CmMessage::Request(request))
        }
        Attribute::CONNECT_REPLY => {
            let (i, head) = ReplyHead::parse_flat(i, t)?;
            t.info(format_args!("QP={:#08x} PSN={}", head.local_qpn, head.starting_psn));
            let (i, private) = rest(f::REP_PRIVATE, i, t)?;
            let rpc_rdma = RpcRdmaPrivate::find(private, t);
            (i, CmMessage::Reply(ConnectReply { head, rpc_rdma, private }))
        }
        Attribute::READY_TO_USE => {
            let (i, head) = ReadyHead::parse_flat(i, t)?;
            (rest(f::RTU_PRIVATE, i, t)?.0, CmMessage::ReadyToUse(head))
        }
        Attribute::CONNECT_REJECT => {
            let (i, head) = RejectHead::parse_flat(i, t)?;
            t.info(format_args!("{}", RejectReason(head.reason)));
            let (i, info) = read::bytes(f::REJ_ARI, 72, i, t)?;
            let (i, private) = rest(f::REJ_PRIVATE, i, t)?;
            let info = info.get(..usize::from(head.info_length())).unwrap_or(info);
            (i, CmMessage::Reject(ConnectReject { head, info, private }))
        }
        Attribute::MSG_RCPT_ACK => {
            let (i, head) = ReceiptHead::parse_flat(i, t)?;
            (rest(f::MRA_PRIVATE, i, t)?.0, CmMessage::MsgRcptAck(head))
        }
        Attribute::DISCONNECT_REQUEST => {
            let (i, head) = DisconnectHead::parse_flat(i, t)?;
            (rest(f::DREQ_PRIVATE, i, t)?.0, CmMessage::DisconnectRequest(head))
        }
        Attribute::DISCONNECT_REPLY => {
            let (i, head) = DisconnectReplyHead::parse_flat(i, t)?;
            (rest(f::DREP_PRIVATE, i, t)?.0, CmMessage::DisconnectReply(head))
        }
        Attribute::LOAD_ALTERNATE_PATH => {
            let (i, head) = LoadPath::parse_flat(i, t)?;
            (rest(f::LAP_PRIVATE, i, t)?.0, CmMessage::LoadAlternatePath(head))
        }
        Attribute::ALTERNATE_PATH_RESPONSE => {
            let (i, head) = PathResponse::parse_flat(i, t)?;
            let (i, _) = read::bytes(f::APR_INFO, 72, i, t)?;
            (rest(f::APR_PRIVATE, i, t)?.0, CmMessage::AlternatePathResponse(head))
        }
        Attribute::SERVICE_ID_RES_REQ => {
            let (i, head) = SidrRequestHead::parse_flat(i, t)?;
            let (i, service) = service_id(i, t)?;
            (rest(f::SIDR_REQ_PRIVATE, i, t)?.0, CmMessage::SidrRequest(head, service))
        }
        // the last one there is
        _ => {
            let (i, head) = SidrReplyHead::parse_flat(i, t)?;
            let (i, _) = read::bytes(f::SIDR_INFO, 72, i, t)?;
            (rest(f::SIDR_REP_PRIVATE, i, t)?.0, CmMessage::SidrReply(head))
        }
    })
}

fn rest<'a, T: Trace>(def: Def, i: &'a [u8], t: &mut T) -> PResult<'a, &'a [u8]> {
    read::bytes(def, i.len(), i, t)
}

fn request<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ConnectRequest<'a>> {
    let (i, ids) = RequestIds::parse_flat(i, t)?;
    let (i, service_id) = service_id(i, t)?;
    let (i, head) = RequestHead::parse_flat(i, t)?;
    let (i, local_gid) = gid([f::PRIM_LOCAL_GID, f::PRIM_LOCAL_GID_IPV4], i, t)?;
    let (i, remote_gid) = gid([f::PRIM_REMOTE_GID, f::PRIM_REMOTE_GID_IPV4], i, t)?;
    let (i, primary) = PrimaryPath::parse_flat(i, t)?;
    let (i, alternate) = AlternatePath::parse_flat(i, t)?;
    if let Some((_, port)) = service_id.port() {
        t.info(format_args!("port {port}"));
    }
    t.info(format_args!("QP={:#08x} PSN={}", head.local_qpn, head.starting_psn));
    let (end, (addresses, private)) = match service_id.port() {
        // services of the IP port spaces alone begin their private data with addresses
        Some(_) if i.len() >= IP_CM_LEN => {
            let (rest, (addresses, private)) = scope(f::IP_CM, i, t, ip_cm)?;
            (rest, (addresses, private))
        }
        // what the capture cut off there does not hide what stands before it
        Some(_) => (rest(f::REQ_PRIVATE, i, t)?.0, (None, &[][..])),
        None => {
            let (rest, private) = rest(f::REQ_PRIVATE, i, t)?;
            (rest, (None, private))
        }
    };
    let rpc_rdma = RpcRdmaPrivate::find(private, t);
    let local_comm_id = ids.local_comm_id;
    Ok((
        end,
        ConnectRequest {
            local_comm_id,
            service_id,
            head,
            local_gid,
            remote_gid,
            primary,
            alternate,
            addresses,
            rpc_rdma,
            private,
        },
    ))
}

fn service_id<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, ServiceId> {
    let (rest, id) = read::be64(f::SERVICE_ID, i, t)?;
    let service = ServiceId(id);
    if let (true, Some((protocol, port))) = (T::ON, service.port()) {
        t.down();
        t.field(f::SERVICE_PREFIX, i, 5, Value::Bytes(&i[..5]));
        t.field(f::SERVICE_PROTOCOL, &i[5..], 1, Value::U(protocol.into()));
        t.field(f::SERVICE_PORT, &i[6..], 2, Value::U(port.into()));
        t.up();
    }
    Ok((rest, service))
}

/// A GID; one that holds an IPv4 address is reported as that.
fn gid<'a, T: Trace>([v6, v4]: [Def; 2], i: &'a [u8], t: &mut T) -> PResult<'a, [u8; 16]> {
    let Ok((rest, gid)) = leaf::array::<16>(i) else { return crate::fault::Fault::short(Some(v6), i, 16).fail() };
    if T::ON {
        if gid.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) {
            t.unshown(i, 12);
            t.field(v4, &i[12..], 4, Value::Bytes(&i[12..16]));
        } else {
            t.field(v6, i, 16, Value::Bytes(&i[..16]));
        }
    }
    Ok((rest, gid))
}

/// Bytes of the RDMA-CM's own part of the private data of a Connect Request (IBA Vol 1, annex A11).
const IP_CM_LEN: usize = 36;

fn ip_cm<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, (Option<Addresses>, &'a [u8])> {
    let (i, head) = IpCm::parse_flat(i, t)?;
    let (i, src, dst) = if head.ip_version() == 6 {
        let (i, src) = read::array::<16, T>(f::SIP6, i, t)?;
        let (i, dst) = read::array::<16, T>(f::DIP6, i, t)?;
        (i, Addr::V6(src), Addr::V6(dst))
    } else {
        // IPv4 stands at the end of its 16 bytes
        let (i, _) = read::array::<12, T>(f::RESERVED, i, t)?;
        let (i, src) = read::array::<4, T>(f::SIP4, i, t)?;
        let (i, _) = read::array::<12, T>(f::RESERVED, i, t)?;
        let (i, dst) = read::array::<4, T>(f::DIP4, i, t)?;
        (i, Addr::V4(src), Addr::V4(dst))
    };
    let addresses = matches!(head.ip_version(), 4 | 6).then_some(Addresses { source_port: head.source_port, src, dst });
    let (i, private) = rest(f::IP_CM_PRIVATE, i, t)?;
    Ok((i, (addresses, private)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Off, Tree};
    use proptest::prelude::*;

    fn mad(attribute: u16, data: &[u8]) -> Vec<u8> {
        datagram(Attribute(attribute), 0x0000_0002_da83_341c, data)
    }

    #[test]
    fn a_datagram_is_that_of_linux() {
        let bytes = datagram(Attribute::READY_TO_USE, 0x0000_0002_da83_341c, &[9; 300]);
        let header = [1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0xda, 0x83, 0x34, 0x1c, 0, 0x14, 0, 0, 0, 0, 0, 0];
        assert_eq!((&bytes[..24], &bytes[24..]), (&header[..], &[9; 232][..]));
        assert_eq!(datagram(Attribute::READY_TO_USE, 0, &[9])[24..26], [9, 0]);
        assert_eq!(ServiceId::of_tcp(20049).port(), Some((0x06, 20049)));
    }

    /// A Connect Request of Linux's NFS client, as captured.
    fn nfs_request() -> Vec<u8> {
        let mut data = Vec::from([0x1c, 0x34, 0x83, 0xda, 0, 0, 0, 0, 0, 0, 0, 0, 1, 6, 0x4e, 0x51]);
        data.extend_from_slice(&[
            0x50, 0x54, 0, 0xff, 0xfe, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xa0,
        ]);
        data.extend_from_slice(&[0x10, 0x24, 0x7a, 0xa6, 0xff, 0xff, 0x50, 0xf0, 0xff, 0xff, 0xff, 0xff]);
        for last in [2, 1] {
            data.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]);
        }
        data.extend_from_slice(&[0x43, 0xb2, 0x60, 0, 0, 0x40, 0, 0x88]);
        data.extend_from_slice(&[0; 44]);
        data.extend_from_slice(&[0, 0x40, 0xa4, 0x8b]);
        for last in [2, 1] {
            data.extend_from_slice(&[0; 12]);
            data.extend_from_slice(&[192, 0, 2, last]);
        }
        data.extend_from_slice(&[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 7]);
        mad(0x0010, &data)
    }

    #[test]
    fn a_captured_request_says_who_connects_to_what() {
        let bytes = nfs_request();
        let (rest, Some(CmMessage::Request(request))) = parse_mad(&bytes, &mut Off).unwrap() else { panic!() };
        assert!(rest.is_empty());
        assert_eq!((request.local_comm_id, request.service_id.port()), (0x1c34_83da, Some((0x06, 20049))));
        let head = request.head;
        assert_eq!(
            (head.local_qpn, head.starting_psn, head.responder_resources, head.initiator_depth),
            (0x11, 0x10247a, 0x80, 0)
        );
        assert_eq!(
            (head.retry_count(), head.rnr_retry_count(), head.max_cm_retries(), head.transport()),
            (6, 0, 15, 0)
        );
        assert_eq!(
            (request.path_mtu(), head.local_lid, request.primary.hop_limit, request.primary.local_ack_timeout()),
            (Some(4096), 0xffff, 0x40, 0x11)
        );
        let addresses = request.addresses.unwrap();
        assert_eq!(
            (addresses.source_port, addresses.src, addresses.dst),
            (42123, Addr::V4([192, 0, 2, 2]), Addr::V4([192, 0, 2, 1]))
        );
        let nfs = request.rpc_rdma.unwrap();
        assert_eq!(
            (nfs.version, nfs.remote_invalidation(), nfs.send_size(), nfs.receive_size()),
            (1, true, 4096, 8192)
        );
        assert_eq!(request.private.len(), 56);

        let mut tree = Tree::new();
        tree.begin(&bytes);
        parse_mad(&bytes, &mut tree).unwrap();
        assert_eq!(tree.number("infiniband.cm.req.serviceid.dport"), Some(20049));
        assert_eq!(tree.number("infiniband.cm.req.pppmtu"), Some(5));
        assert_eq!(tree.all("infiniband.cm.req.prim_localgid_ipv4").count(), 1);
        assert!(tree.info.starts_with("CM ConnectRequest, port 20049"));
    }

    #[test]
    fn a_request_without_ip_addresses_keeps_its_private_data() {
        let mut bytes = nfs_request();
        bytes[24 + 8..24 + 16].copy_from_slice(&[0x10, 0, 0, 0, 0, 0, 0, 5]);
        let (_, Some(CmMessage::Request(request))) = parse_mad(&bytes, &mut Off).unwrap() else { panic!() };
        assert_eq!((request.service_id.port(), request.addresses, request.private.len()), (None, None, 92));

        // cut off within the addresses
        let bytes = nfs_request();
        let (_, Some(CmMessage::Request(request))) = parse_mad(&bytes[..24 + 140 + 30], &mut Off).unwrap() else {
            panic!()
        };
        assert_eq!((request.local_comm_id, request.head.local_qpn), (0x1c34_83da, 0x11));
        assert_eq!((request.addresses, request.rpc_rdma, request.private), (None, None, &[][..]));

        let mut bytes = nfs_request();
        bytes[24 + 141] = 0x60;
        let (_, Some(CmMessage::Request(request))) = parse_mad(&bytes, &mut Off).unwrap() else { panic!() };
        assert!(matches!(request.addresses.unwrap().dst, Addr::V6([0, .., 192, 0, 2, 1])));
    }

    #[test]
    fn every_message_has_its_fields() {
        let mut data: Vec<u8> = (1..=232).collect();
        let parse = |attribute: Attribute, data: &[u8]| -> std::string::String {
            let bytes = mad(attribute.0, data);
            let (rest, message) = parse_mad(&bytes, &mut Off).unwrap();
            assert!(rest.is_empty());
            let message = message.unwrap();
            if !matches!(message, CmMessage::SidrRequest(..) | CmMessage::SidrReply(_)) {
                assert_eq!(message.comm_ids().0, Some(0x01020304));
                assert_eq!(message.comm_ids().1.unwrap_or(0x05060708), 0x05060708);
            }
            match message {
                CmMessage::Reply(m) => {
                    assert_eq!((m.head.local_qpn, m.head.starting_psn), (0x0d0e0f, 0x151617));
                    assert_eq!(
                        (m.head.responder_resources, m.head.initiator_depth, m.head.rnr_retry_count()),
                        (0x19, 0x1a, 0)
                    );
                    assert_eq!((m.head.local_ca_guid, m.private[0], m.private.len()), (0x1d1e1f2021222324, 0x25, 196));
                }
                CmMessage::Reject(m) => {
                    assert_eq!((m.head.reason, m.head.info_length(), m.info.len()), (0x0b0c, 5, 5));
                    assert_eq!((m.info[0], m.private[0], m.private.len()), (0x0d, 0x55, 148));
                }
                CmMessage::MsgRcptAck(m) => assert_eq!((m.acknowledged(), m.service_timeout()), (0, 1)),
                CmMessage::DisconnectRequest(m) => assert_eq!(m.remote_qpn, 0x090a0b),
                CmMessage::LoadAlternatePath(m) => {
                    assert_eq!((m.remote_qpn, m.local_lid, m.hop_limit), (0x0d0e0f, 0x1516, 0x3d))
                }
                CmMessage::AlternatePathResponse(m) => assert_eq!((m.info_length, m.status), (9, 10)),
                CmMessage::SidrRequest(m, service) => {
                    assert_eq!((m.request_id, m.p_key, service.0), (0x01020304, 0x0506, 0x090a0b0c0d0e0f10))
                }
                CmMessage::SidrReply(m) => {
                    assert_eq!(
                        (m.request_id, m.status, m.qpn, m.service_id, m.q_key),
                        (0x01020304, 5, 0x090a0b, 0x0d0e0f1011121314, 0x15161718)
                    );
                }
                _ => {}
            }
            std::format!("{message:?}")
        };
        for (value, name) in Attribute::VALUES {
            let text = parse(Attribute(*value as u16), &data);
            assert!(!text.is_empty(), "{name}");
        }
        data[0x24..0x28].copy_from_slice(&RpcRdmaPrivate::MAGIC.to_be_bytes());
        let bytes = mad(0x0013, &data);
        let (_, Some(CmMessage::Reply(reply))) = parse_mad(&bytes, &mut Off).unwrap() else { panic!() };
        assert_eq!(reply.rpc_rdma.map(|p| p.version), Some(0x29));
        assert_eq!(RejectReason(8).name(), Some("Invalid service ID"));
        assert_eq!(timeout_nanos(20), 4_294_967_296);
    }

    #[test]
    fn other_classes_stay_bytes() {
        let mut bytes = mad(0x0020, &[]);
        bytes[1] = 0x81;
        let mut tree = Tree::new();
        tree.begin(&bytes);
        assert_eq!(parse_mad(&bytes, &mut tree).unwrap().1, None);
        assert_eq!(tree.all("infiniband.mad.data").next().map(|n| n.len), Some(232));
        let (rest, header) = Mad::parse(&bytes, &mut Off).unwrap();
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!((out, rest.len()), (bytes[..24].to_vec(), 232));
    }

    #[test]
    fn every_prefix_gives_its_fields_and_a_fault() {
        for (attribute, _) in Attribute::VALUES {
            let mut bytes = nfs_request();
            bytes[16..18].copy_from_slice(&(*attribute as u16).to_be_bytes());
            let whole = (0..=bytes.len()).find(|n| parse_mad(&bytes[..*n], &mut Off).is_ok()).unwrap();
            assert!(whole > 24);
            for n in 0..whole {
                let mut tree = Tree::new();
                tree.begin(&bytes[..n]);
                let fault = crate::fault::fault_of(parse_mad(&bytes[..n], &mut tree).unwrap_err());
                assert_eq!(tree.faults.len(), 1, "told once");
                assert!(fault.offset_in(&bytes[..n]).is_some());
                assert!(tree.nodes.iter().all(|node| (node.offset + node.len) as usize <= n));
                assert_eq!(tree.number("infiniband.mad.mgmtclass").is_some(), n >= 2);
            }
        }
    }

    proptest! {
        #[test]
        fn anything_decodes(attribute in 0x000eu16..0x001c, data in proptest::collection::vec(any::<u8>(), 0..300), keep in 0usize..300) {
            let mut bytes = mad(attribute, &data);
            bytes.truncate(keep);
            crate::fuzzing::fuzz_mad(&bytes);
        }
    }
}
