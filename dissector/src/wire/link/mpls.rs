//! MPLS label stack entries. RFC 3032. Big-endian.

header! {
    /// One MPLS label stack entry (RFC 3032).
    pub struct Mpls [NODE: Protocol = "mpls", "MultiProtocol Label Switching Header", "RFC 3032 2.1"] {
        entry: be32 = "_", "Entry", hex, bits {
            label: u32 & 0xfffff000 = "mpls.label", "MPLS Label", dechex;
            exp: u32 & 0x00000e00 = "mpls.exp", "MPLS Experimental Bits", dec;
            bottom: u32 & 0x00000100 = "mpls.bottom", "MPLS Bottom Of Label Stack", dec;
            ttl: u32 & 0x000000ff = "mpls.ttl", "MPLS TTL", dec;
        };
    }
}
