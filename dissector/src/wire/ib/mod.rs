//! InfiniBand transport packets, native and over Ethernet (RoCE): IBA volume 1 chapter 9, annexes A16 and A17.
pub mod bth;
pub mod cm;
pub mod ext;
pub mod icrc;
pub mod mad;
pub mod net;

fields! {
    /// The protocol and what is around the headers.
    pub mod f ["IBA Vol 1, 9"] {
        PROTOCOL: Protocol = "infiniband", "InfiniBand";
        PAYLOAD: Bytes = "infiniband.payload", "Payload";
        PADDING: Bytes as Keep = "rdmascope.infiniband.padding", "Padding";
        ICRC: U32 = "infiniband.invariant.crc", "Invariant CRC", hex;
        ICRC_STATUS: U8 = "rdmascope.icrc.status", "Invariant CRC Status", dec, values STATUS;
        ICRC_CALCULATED: U32 = "rdmascope.icrc.calculated", "Calculated Invariant CRC", hex;
        VCRC: U16 = "infiniband.variant.crc", "Variant CRC", hex;
        VCRC_STATUS: U8 = "rdmascope.vcrc.status", "Variant CRC Status", dec, values STATUS;
        RAW: Bytes = "infiniband.rawdata", "Raw Data";
    }
}

/// The outcomes of a checksum, numbered as Wireshark does.
const STATUS: crate::field::Values = &[(0, "Bad"), (1, "Good"), (2, "Unverified")];
