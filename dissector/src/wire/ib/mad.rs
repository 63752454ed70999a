//! Management datagrams: the common header of 24 bytes, and the names of classes and methods. IBA volume 1, 13.4.2.
//! Big-endian.
//!
//! The datagrams of the communication manager are taken apart in [`super::cm`]; of the other classes the data stays
//! bytes.

use crate::fault::PResult;
use crate::leaf::read;
use crate::trace::Trace;

/// Bytes of every management datagram, its header among them.
pub const LEN: usize = 256;
/// The general services queue pair, which takes all of them but those of subnet management.
pub const QP1: u32 = 1;
/// Q_Key of that queue pair.
pub const QP1_KEY: u32 = 0x8001_0000;
/// Communication management.
pub const CLASS_CM: u8 = 0x07;

const CLASSES: crate::field::Values = &[
    (0x01, "Subnet management (LID routed)"),
    (0x03, "Subnet administration"),
    (0x04, "Performance management"),
    (0x05, "Baseboard management"),
    (0x06, "Device management"),
    (0x07, "Communication management"),
    (0x08, "SNMP tunneling"),
    (0x81, "Subnet management (directed route)"),
];

const METHODS: crate::field::Values = &[
    (0x01, "Get"),
    (0x02, "Set"),
    (0x03, "Send"),
    (0x05, "Trap"),
    (0x06, "Report"),
    (0x07, "TrapRepress"),
    (0x12, "GetTable"),
    (0x13, "GetTraceTable"),
    (0x14, "GetMulti"),
    (0x15, "Delete"),
    (0x81, "GetResp"),
    (0x86, "ReportResp"),
    (0x92, "GetTableResp"),
    (0x94, "GetMultiResp"),
    (0x95, "DeleteResp"),
];

header! {
    /// The common header.
    pub struct Mad [NODE: Bytes = "infiniband.mad", "MAD (Management Datagram) Common Header", "IBA Vol 1, 13.4.2"] {
        base_version: u8 = "infiniband.mad.baseversion", "Base Version", hex;
        class: u8 = "infiniband.mad.mgmtclass", "Management Class", hex, values CLASSES;
        class_version: u8 = "infiniband.mad.classversion", "Class Version", hex;
        /// The upper bit is set in a response.
        method: u8 = "infiniband.mad.method", "Method", hex, values METHODS;
        status: be16 = "infiniband.mad.status", "Status", hex;
        /// Hop pointer and hop count in directed route datagrams.
        class_specific: be16 = "infiniband.mad.classspecific", "Class Specific", hex;
        transaction_id: be64 = "infiniband.mad.transactionid", "Transaction ID", hex;
        attribute_id: be16 = "infiniband.mad.attributeid", "Attribute ID", hex;
        reserved: bytes[2] as Keep = "infiniband.reserved", "Reserved";
        attribute_modifier: be32 = "infiniband.mad.attributemodifier", "Attribute Modifier", hex;
    }
}

fields! {
    /// The data after the header.
    pub mod f ["IBA Vol 1, 13.4.2"] {
        DATA: Bytes = "infiniband.mad.data", "MAD Data Payload";
    }
}

/// Tells the data of a class that is not taken apart.
pub fn parse_data<'a, T: Trace>(mad: &Mad, i: &'a [u8], t: &mut T) -> PResult<'a, ()> {
    if T::ON {
        match (Mad::class.value_name(mad.class.into()), Mad::method.value_name(mad.method.into())) {
            (Some(class), Some(method)) => {
                t.info(format_args!("{class} {method}, attribute {:#06x}", mad.attribute_id))
            }
            _ => t.info(format_args!(
                "MAD class {:#04x} method {:#04x}, attribute {:#06x}",
                mad.class, mad.method, mad.attribute_id
            )),
        }
    }
    let (i, _) = read::bytes(f::DATA, i.len(), i, t)?;
    Ok((i, ()))
}
