//! Cases of the probe that need iWARP in user space, since an adapter never sends such data.

use super::{Case, Run, Verdict, accepted_on, closed, encoded, negotiated_on, next, request};
use crate::error::{Error, Result};
use crate::stack::{self, EndReason, SmbDirect};
use crate::transport::iwarp::{Carrier, Config, Endpoint, Iwarp, segment};
use crate::transport::{Fault, Rights, Why};
use rdmascope_dissector::wire::iwarp::ddp::{Buffer, Tagged, Untagged};
use rdmascope_dissector::wire::iwarp::rdmap::Opcode;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

const fn case(name: &'static str, section: &'static str, text: &'static str, run: fn(&mut Run<'_>) -> Result<Verdict>) -> Case {
    Case { name, section, text, slow: false, dies_negotiating: false, run }
}

/// An STag that was never given, or only by chance.
const UNKNOWN: Tagged = Tagged { stag: 0x1234_5678, offset: 0 };

pub(super) const CASES: &[Case] = &[
    case("Iwarp_Revision1", "6.1", "MPA revision 1 is accepted, or refused in the MPA Reply", |r| agreed(r, |c| c.revision = 1)),
    case("Iwarp_Crc", "6.1", "MPA with CRC", |r| agreed(r, |c| c.crc = true)),
    case("Iwarp_NoCrc", "6.1", "MPA without asking for CRC", |r| agreed(r, |c| c.crc = false)),
    case("Iwarp_Markers", "6.1", "MPA markers are sent if they are asked for, or refused in the MPA Reply", |r| {
        agreed(r, |c| c.markers = true)
    }),
    case("Iwarp_NoReadDepths", "6.1", "IRD and ORD of 0 are accepted, or refused in the MPA Reply", |r| {
        agreed(r, |c| (c.ird, c.ord) = (0, 0))
    }),
    case("Iwarp_ByteAtATime", "6.1", "every byte in its own TCP segment", |r| {
        let mut channel = r.connect()?;
        channel.trickle(1);
        accepted_on(channel, &encoded(&request()))
    }),
    case("Iwarp_HalfClose", "3.1.7.1", "a client that closes its direction only does not stop the server", |r| {
        let (mut channel, _) = r.negotiated(request())?;
        channel.half_close()?;
        let _ = next(&mut channel, Duration::from_secs(1))?;
        drop(channel);
        r.serves_on()
    }),
    case("Iwarp_BadCrc", "6.1", "an FPDU with a wrong CRC ends the connection", |r| {
        bad_stream(r, |channel| {
            channel.stack().transport().fault(Fault::BadChecksum);
        })
    }),
    case("Iwarp_WrongMsn", "6.1", "a Send with a message sequence number out of order ends the connection", |r| {
        bad_stream(r, |channel| {
            channel.stack().transport().fault(Fault::WrongSequence);
        })
    }),
    case("Iwarp_OverlappingSegments", "6.1", "a segment of a Send that overlaps the previous one ends the connection", |r| {
        bad_stream(r, |channel| {
            for offset in [0, 8] {
                let buffer = Buffer::Untagged(Untagged { queue: 0, msn: 2, offset });
                transmit(channel, &segment(Opcode::SEND, buffer, false, &[0; 16]));
            }
        })
    }),
    case("Iwarp_ReadResponseToNothing", "6.1", "an RDMA Read Response that nobody asked for ends the connection", |r| {
        bad_stream(r, |channel| transmit(channel, &segment(Opcode::READ_RESPONSE, Buffer::Tagged(UNKNOWN), true, &[0; 16])))
    }),
    case("Iwarp_WriteToUnknownKey", "6.1", "an RDMA Write to a key that was never advertised ends the connection", |r| {
        bad_stream(r, |channel| transmit(channel, &segment(Opcode::WRITE, Buffer::Tagged(UNKNOWN), true, &[0; 16])))
    }),
    case("Iwarp_ReadOfUnknownKey", "6.1", "an RDMA Read of a key that was never advertised ends the connection", |r| {
        bad_stream(r, |channel| {
            if let Some(sink) = channel.stack().register(vec![0; 64], Rights::LOCAL) {
                // an ORD of 0 leaves nothing to try
                let _ = channel.stack().read(sink, 0, UNKNOWN.stag, 0, 16);
            }
        })
    }),
];

/// A connection with these options changed; a refusal in the MPA Reply is an answer as well.
fn agreed(r: &mut Run<'_>, change: impl FnOnce(&mut Config)) -> Result<Verdict> {
    let target = &r.target.config;
    let mut options = (&*target.transport as &dyn Any).downcast_ref::<Iwarp>().cloned().unwrap_or_default();
    change(&mut options.0);
    let config = stack::Config { transport: Arc::new(options), ..target.clone() };
    match r.connect_with(&config) {
        Ok(channel) => accepted_on(channel, &encoded(&request())),
        Err(Error::Ended(EndReason::Transport(ended))) if ended.why == Why::Rejected => {
            Ok(Verdict::NotApplicable("refused in the MPA Reply".into()))
        }
        Err(e) => Err(e),
    }
}

/// Breaks a rule of iWARP after a negotiation: the connection must end, and the server must continue to serve.
fn bad_stream(r: &mut Run<'_>, spoil: impl FnOnce(&mut SmbDirect)) -> Result<Verdict> {
    let mut config = r.target.config.clone();
    config.transport = config.transport.with_checksums().unwrap_or(config.transport);
    let channel = r.connect_with(&config)?;
    let (mut channel, _) = negotiated_on(channel, request())?;
    spoil(&mut channel);
    match closed(&mut channel)? {
        Verdict::Pass => r.serves_on(),
        other => Ok(other),
    }
}

fn transmit(channel: &mut SmbDirect, segment: &[u8]) {
    if let Some(carrier) = (channel.stack().transport() as &mut dyn Any).downcast_mut::<Carrier>() {
        Endpoint::transmit_segment(carrier.connection(), segment);
    }
}
