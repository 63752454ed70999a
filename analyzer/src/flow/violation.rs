//! Violations of the protocol that a receiver of iWARP can detect: one row each, with its section and the Terminate
//! that reports it (RFC 5040 4.8, RFC 5041 7.1 and 8, RFC 5044 8). The receiver in user space ends its connections by
//! these rows.

use core::fmt;

/// Layer that detected the error, in a Terminate.
const RDMAP: u8 = 0;
const DDP: u8 = 1;
const MPA: u8 = 2;
/// RDMAP: access to memory that was not granted, and operations that cannot be.
const REMOTE_PROTECTION: u8 = 1;
const REMOTE_OPERATION: u8 = 2;
/// DDP: no reason is known, and errors of each of its two kinds of buffer.
const CATASTROPHIC: u8 = 0;
const TAGGED: u8 = 1;
const UNTAGGED: u8 = 2;
/// MPA has one kind.
const MPA_ERROR: u8 = 0;

macro_rules! violations {
    ($($(#[$meta:meta])* $name:ident $layer:ident $kind:ident $code:literal $section:literal $text:literal;)+) => {
        /// A rule of iWARP that a sender broke.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Violation {
            $( #[doc = $text] #[doc = ""] #[doc = $section] $name, )+
        }

        impl Violation {
            /// All, in the order of their layers from below.
            pub const ALL: &'static [Self] = &[$( Self::$name, )+];

            /// Layer, error type and error code of the Terminate that answers it.
            pub const fn terminate(self) -> (u8, u8, u8) {
                match self {
                    $( Self::$name => ($layer, $kind, $code), )+
                }
            }

            /// Document and section of the rule.
            pub const fn section(self) -> &'static str {
                match self {
                    $( Self::$name => $section, )+
                }
            }

            /// The violation, as a predicate of the sender.
            pub const fn text(self) -> &'static str {
                match self {
                    $( Self::$name => $text, )+
                }
            }
        }
    };
}

violations! {
    MpaCrc MPA MPA_ERROR 0x02 "RFC 5044 8" "sent an FPDU with a wrong CRC";
    MpaMarker MPA MPA_ERROR 0x03 "RFC 5044 8" "sent a marker that does not point to the beginning of its FPDU";
    DdpHeader DDP CATASTROPHIC 0x00 "RFC 5041 7.1" "sent a segment that is shorter than its header";
    DdpTaggedKey DDP TAGGED 0x00 "RFC 5041 7.1" "used an STag that was never advertised";
    DdpTaggedBounds DDP TAGGED 0x01 "RFC 5041 7.1" "wrote past the bounds of a tagged buffer";
    DdpTaggedWrap DDP TAGGED 0x03 "RFC 5041 7.1" "used a tagged offset that wraps";
    DdpTaggedVersion DDP TAGGED 0x04 "RFC 5041 7.1" "sent a tagged segment of another DDP version";
    DdpQueue DDP UNTAGGED 0x01 "RFC 5041 7.1" "used a queue that does not exist";
    DdpNoBuffer DDP UNTAGGED 0x02 "RFC 5041 7.1" "sent more messages on a queue than there are buffers";
    DdpMsn DDP UNTAGGED 0x03 "RFC 5041 7.1" "sent a message sequence number out of order";
    DdpOffset DDP UNTAGGED 0x04 "RFC 5041 7.1" "sent a message offset out of order";
    DdpTooLong DDP UNTAGGED 0x05 "RFC 5041 7.1" "sent a message that is longer than the buffer for it";
    DdpUntaggedVersion DDP UNTAGGED 0x06 "RFC 5041 7.1" "sent an untagged segment of another DDP version";
    RdmapKey RDMAP REMOTE_PROTECTION 0x00 "RFC 5040 4.8" "asked for memory of an STag that was never advertised";
    RdmapBounds RDMAP REMOTE_PROTECTION 0x01 "RFC 5040 4.8" "asked for memory past the bounds of a region";
    RdmapRights RDMAP REMOTE_PROTECTION 0x02 "RFC 5040 4.8" "used memory for which it has no access right";
    RdmapWrap RDMAP REMOTE_PROTECTION 0x04 "RFC 5040 4.8" "asked for memory at an offset that wraps";
    RdmapInvalidate RDMAP REMOTE_PROTECTION 0x09 "RFC 5040 4.8" "invalidated an STag that cannot be invalidated";
    RdmapVersion RDMAP REMOTE_OPERATION 0x05 "RFC 5040 4.8" "sent a message of another RDMAP version";
    RdmapOpcode RDMAP REMOTE_OPERATION 0x06 "RFC 5040 4.8" "sent an operation that is not allowed there";
}

impl Violation {
    /// Violation that a Terminate with this layer, error type and error code reports.
    pub fn of_terminate(layer: u8, error_type: u8, code: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|violation| violation.terminate() == (layer, error_type, code))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_terminate_names_one_rule() {
        for violation in Violation::ALL {
            let (layer, error_type, code) = violation.terminate();
            assert_eq!(Violation::of_terminate(layer, error_type, code), Some(*violation));
            assert!(violation.section().starts_with("RFC 50"));
        }
        assert_eq!(Violation::of_terminate(3, 0, 0), None);
    }
}
