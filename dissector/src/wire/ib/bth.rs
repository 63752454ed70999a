//! The Base Transport Header, first in every InfiniBand transport packet. IBA volume 1, 9.2. Big-endian.

use crate::field::Values;

wire_enum! {
    /// The operation and its place in a message. The upper three bits are the service: RC 0, UC 1, RD 2, UD 3, XRC 5.
    pub enum Opcode: u8 {
        RC_SEND_FIRST = 0x00, "RC - SEND First";
        RC_SEND_MIDDLE = 0x01, "RC - SEND Middle";
        RC_SEND_LAST = 0x02, "RC - SEND Last";
        RC_SEND_LAST_IMMEDIATE = 0x03, "RC - SEND Last with Immediate";
        RC_SEND_ONLY = 0x04, "RC - SEND Only";
        RC_SEND_ONLY_IMMEDIATE = 0x05, "RC - SEND Only with Immediate";
        RC_RDMA_WRITE_FIRST = 0x06, "RC - RDMA WRITE First";
        RC_RDMA_WRITE_MIDDLE = 0x07, "RC - RDMA WRITE Middle";
        RC_RDMA_WRITE_LAST = 0x08, "RC - RDMA WRITE Last";
        RC_RDMA_WRITE_LAST_IMMEDIATE = 0x09, "RC - RDMA WRITE Last with Immediate";
        RC_RDMA_WRITE_ONLY = 0x0a, "RC - RDMA WRITE Only";
        RC_RDMA_WRITE_ONLY_IMMEDIATE = 0x0b, "RC - RDMA WRITE Only with Immediate";
        RC_RDMA_READ_REQUEST = 0x0c, "RC - RDMA READ Request";
        RC_RDMA_READ_RESPONSE_FIRST = 0x0d, "RC - RDMA READ response First";
        RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e, "RC - RDMA READ response Middle";
        RC_RDMA_READ_RESPONSE_LAST = 0x0f, "RC - RDMA READ response Last";
        RC_RDMA_READ_RESPONSE_ONLY = 0x10, "RC - RDMA READ response Only";
        RC_ACKNOWLEDGE = 0x11, "RC - Acknowledge";
        RC_ATOMIC_ACKNOWLEDGE = 0x12, "RC - ATOMIC Acknowledge";
        RC_CMP_SWAP = 0x13, "RC - CmpSwap";
        RC_FETCH_ADD = 0x14, "RC - FetchAdd";
        RC_SEND_LAST_INVALIDATE = 0x16, "RC - SEND Last with Invalidate";
        RC_SEND_ONLY_INVALIDATE = 0x17, "RC - SEND Only with Invalidate";
        UC_SEND_FIRST = 0x20, "UC - SEND First";
        UC_SEND_MIDDLE = 0x21, "UC - SEND Middle";
        UC_SEND_LAST = 0x22, "UC - SEND Last";
        UC_SEND_LAST_IMMEDIATE = 0x23, "UC - SEND Last with Immediate";
        UC_SEND_ONLY = 0x24, "UC - SEND Only";
        UC_SEND_ONLY_IMMEDIATE = 0x25, "UC - SEND Only with Immediate";
        UC_RDMA_WRITE_FIRST = 0x26, "UC - RDMA WRITE First";
        UC_RDMA_WRITE_MIDDLE = 0x27, "UC - RDMA WRITE Middle";
        UC_RDMA_WRITE_LAST = 0x28, "UC - RDMA WRITE Last";
        UC_RDMA_WRITE_LAST_IMMEDIATE = 0x29, "UC - RDMA WRITE Last with Immediate";
        UC_RDMA_WRITE_ONLY = 0x2a, "UC - RDMA WRITE Only";
        UC_RDMA_WRITE_ONLY_IMMEDIATE = 0x2b, "UC - RDMA WRITE Only with Immediate";
        UD_SEND_ONLY = 0x64, "UD - SEND only";
        UD_SEND_ONLY_IMMEDIATE = 0x65, "UD - SEND only with Immediate";
        CNP = 0x81, "CNP";
    }
}

const OPCODES: Values = Opcode::VALUES;

header! {
    /// The Base Transport Header.
    pub struct Bth [NODE: Bytes = "infiniband.bth", "Base Transport Header", "IBA Vol 1, 9.2"] {
        opcode: u8 = "infiniband.bth.opcode", "Opcode", dec, values OPCODES;
        bits: u8 = "_", "Flags", hex, bits {
            se: bool & 0x80 = "infiniband.bth.se", "Solicited Event";
            m: bool & 0x40 = "infiniband.bth.m", "MigReq";
            padcnt: u8 & 0x30 = "infiniband.bth.padcnt", "Pad Count", dec;
            tver: u8 & 0x0f = "infiniband.bth.tver", "Header Version", dec;
        };
        p_key: be16 = "infiniband.bth.p_key", "Partition Key", dec;
        resv8: u8 = "infiniband.bth.resv8", "Reserved", hex;
        /// 24 bits; 1 is the general services queue pair.
        dest_qp: be24 = "infiniband.bth.destqp", "Destination Queue Pair", hex;
        ack: u8 = "_", "Acknowledge", hex, bits {
            a: bool & 0x80 = "infiniband.bth.a", "Acknowledge Request";
            resv7: u8 & 0x7f = "infiniband.bth.reserved7", "Reserved (7 bits)", dec;
        };
        /// 24 bits, wraps.
        psn: be24 = "infiniband.bth.psn", "Packet Sequence Number", dec;
    }
}
