//! Link layers: the first header of a frame, and the tags between it and the network layer.
pub mod erf;
pub mod ethernet;
pub mod mpls;
pub mod null;
pub mod pause;
pub mod sll;
pub mod vlan;

use crate::field::Values;

/// Names of ethertypes: the ones that are looked into, and the ones that are met beside storage.
#[rustfmt::skip]
pub const ETHERTYPES: Values = &[
    (0x0800, "IPv4"), (0x0806, "ARP"), (0x0842, "Wake on LAN"), (0x22eb, "ERSPAN Type III"), (0x22f0, "AVTP"), (0x22f3, "TRILL"), (0x6558, "Transparent Ethernet bridging"),
    (0x8035, "RARP"), (0x8100, "802.1Q Virtual LAN"), (0x86dd, "IPv6"), (0x8808, "MAC Control"), (0x8809, "Slow Protocols"), (0x880b, "PPP"),
    (0x8847, "MPLS label switched packet"), (0x8848, "MPLS multicast"), (0x8863, "PPPoE Discovery"), (0x8864, "PPPoE Session"), (0x888e, "802.1X Authentication"),
    (0x88a8, "802.1ad Provider Bridge"), (0x88be, "ERSPAN"), (0x88cc, "LLDP"), (0x88e5, "802.1AE MACsec"), (0x88f7, "PTPv2"),
    (0x8902, "CFM"), (0x8906, "FCoE"), (0x8914, "FIP"), (0x8915, "RoCE"), (0x9000, "Loopback"), (0x9100, "QinQ (old)"), (0x9200, "QinQ (old)"),
];
