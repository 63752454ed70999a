//! Networks that use the same addresses, such as those of two tenants of a cloud: told apart by the VLAN or by the
//! identifier of the overlay (RFC 7348, RFC 8926, RFC 2890).
//!
//! A tag by itself says nothing: the copies of a mirror may have another one than their originals, and a router may
//! give each direction its own. A second network is one in which a connection begins whose hosts and numbers are those
//! of a connection that is still open, while both directions have another tag.

use hashbrown::HashMap;
use rdmascope_dissector::frame::{Addr, Packet, TunnelKind};

/// Networks at most; more are taken for the first one.
const NETWORKS_MAX: u16 = 1024;

/// VLAN and overlay of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tag {
    vlan: Option<u16>,
    overlay: Option<(TunnelKind, u32)>,
}

impl Tag {
    /// That of a packet. A mirror's tunnel is no overlay.
    pub(super) fn of(packet: &Packet<'_>) -> Self {
        let is_overlay = |kind| matches!(kind, TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gre);
        let overlay = packet.tunnel.filter(|tunnel| is_overlay(tunnel.kind)).map(|tunnel| (tunnel.kind, tunnel.id));
        Self { vlan: packet.vlan, overlay }
    }
}

/// The networks of a capture: 0 is the first one, and for most captures the only one.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks {
    /// By sender, receiver and tag.
    known: HashMap<(Addr, Addr, Tag), u16>,
    last: u16,
}

impl Networks {
    /// The network of a packet.
    #[inline]
    pub(super) fn of(&self, packet: &Packet<'_>) -> u16 {
        if self.known.is_empty() { 0 } else { self.find(packet) }
    }

    /// Counts those of another part of the capture that has ended. Returns true if all of them are told apart.
    pub(super) fn join(&mut self, part: &Self) -> bool {
        self.last = self.last.saturating_add(part.last);
        self.last < NETWORKS_MAX
    }

    #[cold]
    fn find(&self, packet: &Packet<'_>) -> u16 {
        self.known.get(&(packet.src, packet.dst, Tag::of(packet))).copied().unwrap_or(0)
    }

    /// A connection begins between two hosts, under the tags of both directions, and has the numbers of an open one,
    /// whose tags are `open`. Returns its network if that is another one.
    #[cold]
    pub(super) fn begin(&mut self, (a, b): (Addr, Addr), new: [Tag; 2], open: [Option<Tag>; 2]) -> Option<u16> {
        let differs = |n: usize| open[n].is_some_and(|tag| tag != new[n]);
        if !differs(0) || !differs(1) || self.last >= NETWORKS_MAX {
            return None;
        }
        self.last += 1;
        self.known.insert((a, b, new[0]), self.last);
        self.known.insert((b, a, new[1]), self.last);
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [Addr; 2] = [Addr::V4([10, 0, 0, 1]), Addr::V4([10, 0, 0, 2])];

    fn vlan(id: u16) -> Tag {
        Tag { vlan: Some(id), ..Tag::default() }
    }

    fn network(networks: &Networks, from: usize, vlan: Option<u16>) -> u16 {
        networks.of(&Packet { src: HOSTS[from], dst: HOSTS[1 - from], vlan, ..Packet::default() })
    }

    #[test]
    fn another_network_needs_another_tag_in_both_directions() {
        let mut networks = Networks::default();
        let hosts = (HOSTS[0], HOSTS[1]);
        assert_eq!(networks.begin(hosts, [vlan(10), vlan(20)], [Some(vlan(10)), Some(vlan(20))]), None);
        assert_eq!(
            networks.begin(hosts, [vlan(10), vlan(30)], [Some(vlan(10)), Some(vlan(20))]),
            None,
            "one has the same"
        );
        assert_eq!(networks.begin(hosts, [vlan(30), vlan(30)], [Some(vlan(10)), None]), None, "one is not known");
        assert_eq!(network(&networks, 0, Some(30)), 0);
        assert_eq!(networks.begin(hosts, [vlan(30), vlan(40)], [Some(vlan(10)), Some(vlan(20))]), Some(1));
        assert_eq!([Some(30), Some(40), Some(10), None].map(|tag| network(&networks, 0, tag)), [1, 0, 0, 0]);
        assert_eq!([Some(30), Some(40), Some(10), None].map(|tag| network(&networks, 1, tag)), [0, 1, 0, 0]);
    }

    #[test]
    fn the_tunnel_of_a_mirror_is_no_network() {
        use rdmascope_dissector::frame::Tunnel;
        let tag =
            |kind, id| Tag::of(&Packet { tunnel: Some(Tunnel { kind, id, truncated: false }), ..Packet::default() });
        assert_eq!(tag(TunnelKind::Erspan2, 1), tag(TunnelKind::Erspan2, 2));
        assert_ne!(tag(TunnelKind::Vxlan, 1), tag(TunnelKind::Vxlan, 2));
    }
}
