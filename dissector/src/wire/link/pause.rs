//! MAC control: pause (IEEE 802.3 annex 31B) and priority flow control (IEEE 802.1Qbb, 802.3 annex 31D). Big-endian.

use crate::fault::{Fault, PResult};
use crate::leaf::read;
use crate::trace::{Trace, scope};

const OPCODES: crate::field::Values = &[(0x0001, "Pause"), (0x0101, "Class Based Flow Control [CBFC] Pause")];

fields! {
    /// The protocol and the plain pause.
    pub mod f ["IEEE 802.3 31"] {
        PROTOCOL: Protocol = "macc", "MAC Control";
        OPCODE: U16 = "macc.opcode", "Opcode", hex, values OPCODES;
        PAUSE_TIME: U16 = "macc.pause_time", "pause_time", dec;
    }
}

header! {
    /// Priorities that must pause, and the time for each, in quanta of 512 bit times.
    pub struct Cbfc [NODE = "rdmascope.macc.cbfc", "Priority flow control", "IEEE 802.3 31D"] {
        enable: be16 = "macc.cbfc.enbv", "CBFC Class Enable Vector", hex, bits {
            c0: bool & 0x01 = "macc.cbfc.enbv.c0", "C0";
            c1: bool & 0x02 = "macc.cbfc.enbv.c1", "C1";
            c2: bool & 0x04 = "macc.cbfc.enbv.c2", "C2";
            c3: bool & 0x08 = "macc.cbfc.enbv.c3", "C3";
            c4: bool & 0x10 = "macc.cbfc.enbv.c4", "C4";
            c5: bool & 0x20 = "macc.cbfc.enbv.c5", "C5";
            c6: bool & 0x40 = "macc.cbfc.enbv.c6", "C6";
            c7: bool & 0x80 = "macc.cbfc.enbv.c7", "C7";
        };
        t0: be16 = "macc.cbfc.pause_time.c0", "C0", dec;
        t1: be16 = "macc.cbfc.pause_time.c1", "C1", dec;
        t2: be16 = "macc.cbfc.pause_time.c2", "C2", dec;
        t3: be16 = "macc.cbfc.pause_time.c3", "C3", dec;
        t4: be16 = "macc.cbfc.pause_time.c4", "C4", dec;
        t5: be16 = "macc.cbfc.pause_time.c5", "C5", dec;
        t6: be16 = "macc.cbfc.pause_time.c6", "C6", dec;
        t7: be16 = "macc.cbfc.pause_time.c7", "C7", dec;
    }
}

impl Cbfc {
    /// The pause times by priority.
    pub const fn times(&self) -> [u16; 8] {
        [self.t0, self.t1, self.t2, self.t3, self.t4, self.t5, self.t6, self.t7]
    }
}

/// Decodes a MAC control message: its priorities and their times; no priorities for a plain pause, whose time applies
/// to all.
pub fn parse<'a, T: Trace>(i: &'a [u8], t: &mut T) -> PResult<'a, (Option<u8>, [u16; 8])> {
    t.protocol("MAC CTRL");
    scope(f::PROTOCOL, i, t, |i, t| {
        let (rest, opcode) = read::be16(f::OPCODE, i, t)?;
        match opcode {
            0x0001 => {
                let (rest, quanta) = read::be16(f::PAUSE_TIME, rest, t)?;
                t.info(format_args!("Pause: pause_time: {quanta} quanta"));
                Ok((rest, (None, [quanta; 8])))
            }
            0x0101 => {
                let (rest, cbfc) = Cbfc::parse(rest, t)?;
                let priorities = (cbfc.enable & 0xff) as u8;
                let enabled = cbfc.times().into_iter().enumerate().filter(|(n, _)| priorities >> n & 1 != 0);
                let quanta = enabled.map(|(_, time)| time).max().unwrap_or(0);
                t.info(format_args!(
                    "Class Based Flow Control [CBFC] Pause: priorities {priorities:#04x}, up to {quanta} quanta"
                ));
                Ok((rest, (Some(priorities), cbfc.times())))
            }
            _ => Fault::value(f::OPCODE, i).fail(),
        }
    })
}
