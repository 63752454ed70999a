//! Cases of the probe that need iWARP in user space, since an adapter never sends such data.

use super::{Carrier, Config, Iwarp, segment};
use crate::transport::case::{OwnCase, Steps};
use crate::transport::{Fabric, Fault, Rights, Transport};
use rdmascope_dissector::wire::iwarp::ddp::{Buffer, Tagged, Untagged};
use rdmascope_dissector::wire::iwarp::rdmap::Opcode;
use std::any::Any;
use std::sync::Arc;

const fn case(name: &'static str, section: &'static str, text: &'static str, steps: Steps) -> OwnCase {
    OwnCase { name, section, text, dies_negotiating: false, steps }
}

/// A negotiation with other options.
const fn agreed(options: fn(&dyn Fabric) -> Arc<dyn Fabric>) -> Steps {
    Steps::Negotiates { options, rejected: "refused in the MPA Reply" }
}

/// An STag that was never given, or only by chance.
const UNKNOWN: Tagged = Tagged { stag: 0x1234_5678, offset: 0 };

pub(super) const CASES: &[OwnCase] = &[
    case(
        "Iwarp_Revision1",
        "6.1",
        "MPA revision 1 is accepted, or refused in the MPA Reply",
        agreed(|f| with(f, |c| c.revision = 1)),
    ),
    case("Iwarp_Crc", "6.1", "MPA with CRC", agreed(|f| with(f, |c| c.crc = true))),
    case("Iwarp_NoCrc", "6.1", "MPA without asking for CRC", agreed(|f| with(f, |c| c.crc = false))),
    case(
        "Iwarp_Markers",
        "6.1",
        "MPA markers are sent if they are asked for, or refused in the MPA Reply",
        agreed(|f| with(f, |c| c.markers = true)),
    ),
    case(
        "Iwarp_NoReadDepths",
        "6.1",
        "IRD and ORD of 0 are accepted, or refused in the MPA Reply",
        agreed(|f| with(f, |c| (c.ird, c.ord) = (0, 0))),
    ),
    case("Iwarp_ByteAtATime", "6.1", "every byte in its own TCP segment", Steps::Trickles(1)),
    case(
        "Iwarp_HalfClose",
        "3.1.7.1",
        "a client that closes its direction only does not stop the server",
        Steps::HalfCloses,
    ),
    case(
        "Iwarp_BadCrc",
        "6.1",
        "an FPDU with a wrong CRC ends the connection",
        Steps::Breaks(|transport| {
            transport.fault(Fault::BadChecksum);
        }),
    ),
    case(
        "Iwarp_WrongMsn",
        "6.1",
        "a Send with a message sequence number out of order ends the connection",
        Steps::Breaks(|transport| {
            transport.fault(Fault::WrongSequence);
        }),
    ),
    case(
        "Iwarp_OverlappingSegments",
        "6.1",
        "a segment of a Send that overlaps the previous one ends the connection",
        Steps::Breaks(|transport| {
            for offset in [0, 8] {
                let buffer = Buffer::Untagged(Untagged { queue: 0, msn: 2, offset });
                transmit(transport, &segment(Opcode::SEND, buffer, false, &[0; 16]));
            }
        }),
    ),
    case(
        "Iwarp_ReadResponseToNothing",
        "6.1",
        "an RDMA Read Response that nobody asked for ends the connection",
        Steps::Breaks(|transport| {
            transmit(transport, &segment(Opcode::READ_RESPONSE, Buffer::Tagged(UNKNOWN), true, &[0; 16]))
        }),
    ),
    case(
        "Iwarp_WriteToUnknownKey",
        "6.1",
        "an RDMA Write to a key that was never advertised ends the connection",
        Steps::Breaks(|transport| {
            transmit(transport, &segment(Opcode::WRITE, Buffer::Tagged(UNKNOWN), true, &[0; 16]))
        }),
    ),
    case(
        "Iwarp_ReadOfUnknownKey",
        "6.1",
        "an RDMA Read of a key that was never advertised ends the connection",
        Steps::Breaks(|transport| {
            if let Some(sink) = transport.register(vec![0; 64], Rights::LOCAL) {
                // an ORD of 0 leaves nothing to try
                let _ = transport.read(sink.key, sink.offset, UNKNOWN.stag, 0, 16);
            }
        }),
    ),
];

/// The transport with these options changed.
fn with(fabric: &dyn Fabric, change: impl FnOnce(&mut Config)) -> Arc<dyn Fabric> {
    let mut options = (fabric as &dyn Any).downcast_ref::<Iwarp>().cloned().unwrap_or_default();
    change(&mut options.0);
    Arc::new(options)
}

fn transmit(transport: &mut dyn Transport, segment: &[u8]) {
    if let Some(carrier) = (transport as &mut dyn Any).downcast_mut::<Carrier>() {
        carrier.connection().transmit_segment(segment);
    }
}
