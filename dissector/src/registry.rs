//! Every field there is, by name. A message adds one line to [`DECLARED`]; completion, filters, `rdmascope fields`, the
//! Wireshark plugin and the tests read it from here.

use crate::field::{Def, Fields, OURS};
use crate::wire::{
    arp, frame_fields, ib, icmp, ip, iwarp, link, mount, nfs, nfsacl, nlm, portmap, rpc, rpcrdma, smb2, smbd, tcp,
    tunnel, udp, xdr,
};
use crate::wireshark;
use alloc::string::String;
use alloc::vec::Vec;

/// The fields of every message, a line each.
pub const DECLARED: &[&[Def]] = &[
    <frame_fields::f::All as Fields>::FIELDS,
    <arp::f::All as Fields>::FIELDS,
    <icmp::f::All as Fields>::FIELDS,
    <icmp::f6::All as Fields>::FIELDS,
    <ib::bth::Bth as Fields>::FIELDS,
    <ib::cm::f::All as Fields>::FIELDS,
    <ib::cm::RequestIds as Fields>::FIELDS,
    <ib::cm::RequestHead as Fields>::FIELDS,
    <ib::cm::PrimaryPath as Fields>::FIELDS,
    <ib::cm::AlternatePath as Fields>::FIELDS,
    <ib::cm::IpCm as Fields>::FIELDS,
    <ib::cm::ReplyHead as Fields>::FIELDS,
    <ib::cm::ReadyHead as Fields>::FIELDS,
    <ib::cm::RejectHead as Fields>::FIELDS,
    <ib::cm::ReceiptHead as Fields>::FIELDS,
    <ib::cm::DisconnectHead as Fields>::FIELDS,
    <ib::cm::DisconnectReplyHead as Fields>::FIELDS,
    <ib::cm::LoadPath as Fields>::FIELDS,
    <ib::cm::PathResponse as Fields>::FIELDS,
    <ib::cm::SidrRequestHead as Fields>::FIELDS,
    <ib::cm::SidrReplyHead as Fields>::FIELDS,
    <ib::cm::RpcRdmaPrivate as Fields>::FIELDS,
    <ib::mad::Mad as Fields>::FIELDS,
    <ib::mad::f::All as Fields>::FIELDS,
    <ib::ext::f::All as Fields>::FIELDS,
    <ib::ext::Reth as Fields>::FIELDS,
    <ib::ext::Feth as Fields>::FIELDS,
    <ib::ext::AtomicEth as Fields>::FIELDS,
    <ib::f::All as Fields>::FIELDS,
    <ib::net::Lrh as Fields>::FIELDS,
    <ib::net::Grh as Fields>::FIELDS,
    <ip::f::All as Fields>::FIELDS,
    <ip::f6::All as Fields>::FIELDS,
    <link::erf::f::All as Fields>::FIELDS,
    <link::erf::Record as Fields>::FIELDS,
    <link::ethernet::f::All as Fields>::FIELDS,
    <link::ethernet::llc::All as Fields>::FIELDS,
    <link::mpls::Mpls as Fields>::FIELDS,
    <link::null::f::All as Fields>::FIELDS,
    <link::pause::f::All as Fields>::FIELDS,
    <link::pause::Cbfc as Fields>::FIELDS,
    <link::sll::f::All as Fields>::FIELDS,
    <link::vlan::Vlan as Fields>::FIELDS,
    <link::vlan::Provider as Fields>::FIELDS,
    <smb2::create::f::All as Fields>::FIELDS,
    <smb2::access::access::All as Fields>::FIELDS,
    <smb2::access::attributes::All as Fields>::FIELDS,
    <smb2::create::CreateRequestFixed as Fields>::FIELDS,
    <smb2::create::CreateResponseFixed as Fields>::FIELDS,
    <smb2::create_context::f::All as Fields>::FIELDS,
    <smb2::error::f::All as Fields>::FIELDS,
    <smb2::error::ErrorFixed as Fields>::FIELDS,
    <smb2::file::CloseRequest as Fields>::FIELDS,
    <smb2::file::CloseResponse as Fields>::FIELDS,
    <smb2::file::FlushRequest as Fields>::FIELDS,
    <smb2::header::f::All as Fields>::FIELDS,
    <smb2::info::f::All as Fields>::FIELDS,
    <smb2::info::fs::All as Fields>::FIELDS,
    <smb2::info::quota::All as Fields>::FIELDS,
    <smb2::ioctl::f::All as Fields>::FIELDS,
    <smb2::ioctl::qos::All as Fields>::FIELDS,
    <smb2::ioctl::dfs::All as Fields>::FIELDS,
    <smb2::ioctl::IoctlRequestFixed as Fields>::FIELDS,
    <smb2::ioctl::IoctlResponseFixed as Fields>::FIELDS,
    <smb2::lock::LockRequestFixed as Fields>::FIELDS,
    <smb2::lock::LockElement as Fields>::FIELDS,
    <smb2::f::All as Fields>::FIELDS,
    <smb2::negotiate::f::All as Fields>::FIELDS,
    <smb2::negotiate::NegotiateRequestFixed as Fields>::FIELDS,
    <smb2::negotiate::NegotiateResponseFixed as Fields>::FIELDS,
    <smb2::notify::f::All as Fields>::FIELDS,
    <smb2::notify::NotifyRequest as Fields>::FIELDS,
    <smb2::notify::NotifyResponseFixed as Fields>::FIELDS,
    <smb2::notify::ServerNotification as Fields>::FIELDS,
    <smb2::ntlmssp::f::All as Fields>::FIELDS,
    <smb2::oplock::OplockBreak as Fields>::FIELDS,
    <smb2::oplock::LeaseBreakNotification as Fields>::FIELDS,
    <smb2::oplock::LeaseBreak as Fields>::FIELDS,
    <smb2::query::f::All as Fields>::FIELDS,
    <smb2::query::QueryInfoRequestFixed as Fields>::FIELDS,
    <smb2::query::QueryInfoResponseFixed as Fields>::FIELDS,
    <smb2::query::SetInfoRequestFixed as Fields>::FIELDS,
    <smb2::query::QueryDirectoryRequestFixed as Fields>::FIELDS,
    <smb2::query::QueryDirectoryResponseFixed as Fields>::FIELDS,
    <smb2::rdma_channel::f::All as Fields>::FIELDS,
    <smb2::rdma_channel::RdmaTransformFixed as Fields>::FIELDS,
    <smb2::rdma_channel::CryptoTransformFixed as Fields>::FIELDS,
    <smb2::read_write::f::All as Fields>::FIELDS,
    <smb2::read_write::ReadRequestFixed as Fields>::FIELDS,
    <smb2::read_write::ReadResponseFixed as Fields>::FIELDS,
    <smb2::read_write::WriteRequestFixed as Fields>::FIELDS,
    <smb2::read_write::WriteResponseFixed as Fields>::FIELDS,
    <smb2::reparse::f::All as Fields>::FIELDS,
    <iwarp::mpa::f::All as Fields>::FIELDS,
    <iwarp::mpa::RequestHeader as Fields>::FIELDS,
    <iwarp::mpa::ReplyHeader as Fields>::FIELDS,
    <iwarp::mpa::Enhanced as Fields>::FIELDS,
    <iwarp::mpa::Marker as Fields>::FIELDS,
    <iwarp::ddp::f::All as Fields>::FIELDS,
    <iwarp::ddp::Control as Fields>::FIELDS,
    <iwarp::ddp::Tagged as Fields>::FIELDS,
    <iwarp::ddp::Untagged as Fields>::FIELDS,
    <iwarp::rdmap::f::All as Fields>::FIELDS,
    <iwarp::rdmap::hdrct::All as Fields>::FIELDS,
    <iwarp::rdmap::Control as Fields>::FIELDS,
    <iwarp::rdmap::ReadRequest as Fields>::FIELDS,
    <iwarp::rdmap::HeaderControl as Fields>::FIELDS,
    <iwarp::rdmap::AtomicHead as Fields>::FIELDS,
    <iwarp::rdmap::AddOperands as Fields>::FIELDS,
    <iwarp::rdmap::SwapOperands as Fields>::FIELDS,
    <iwarp::rdmap::CompareOperands as Fields>::FIELDS,
    <iwarp::rdmap::AtomicResponse as Fields>::FIELDS,
    <smb2::security::f::All as Fields>::FIELDS,
    <smb2::session::f::All as Fields>::FIELDS,
    <smb2::session::SessionSetupRequestFixed as Fields>::FIELDS,
    <smb2::session::SessionSetupResponseFixed as Fields>::FIELDS,
    <smb2::session::Empty as Fields>::FIELDS,
    <smb2::smb1::f::All as Fields>::FIELDS,
    <smb2::smb1::Smb1Header as Fields>::FIELDS,
    <smb2::spnego::f::All as Fields>::FIELDS,
    <smb2::transform::f::All as Fields>::FIELDS,
    <smb2::transform::TransformHeader as Fields>::FIELDS,
    <smb2::tree::f::All as Fields>::FIELDS,
    <smb2::tree::caching::All as Fields>::FIELDS,
    <smb2::tree::TreeConnectRequestFixed as Fields>::FIELDS,
    <smb2::tree::TreeConnectResponse as Fields>::FIELDS,
    <smbd::f::All as Fields>::FIELDS,
    <smbd::NegotiateRequest as Fields>::FIELDS,
    <smbd::NegotiateResponse as Fields>::FIELDS,
    <smbd::DataTransfer as Fields>::FIELDS,
    <smbd::BufferDescriptorV1 as Fields>::FIELDS,
    <rpcrdma::f::All as Fields>::FIELDS,
    <rpcrdma::Fixed as Fields>::FIELDS,
    <rpcrdma::Padding as Fields>::FIELDS,
    <rpcrdma::Segment as Fields>::FIELDS,
    <rpcrdma::ReadSegment as Fields>::FIELDS,
    <rpcrdma::Versions as Fields>::FIELDS,
    <xdr::f::All as Fields>::FIELDS,
    <rpc::f::All as Fields>::FIELDS,
    <nfs::f::All as Fields>::FIELDS,
    <nfs::v3::f::All as Fields>::FIELDS,
    <nfs::v4::f::All as Fields>::FIELDS,
    <nfs::v4::attr::f::All as Fields>::FIELDS,
    <nfs::v4::file::f::All as Fields>::FIELDS,
    <nfs::v4::session::f::All as Fields>::FIELDS,
    <nfs::v4::layout::f::All as Fields>::FIELDS,
    <nfs::v4::copy::f::All as Fields>::FIELDS,
    <nfs::v4::callback::f::All as Fields>::FIELDS,
    <mount::f::All as Fields>::FIELDS,
    <nlm::f::All as Fields>::FIELDS,
    <portmap::f::All as Fields>::FIELDS,
    <nfsacl::f::All as Fields>::FIELDS,
    <rpc::CallHeader as Fields>::FIELDS,
    <rpc::ReplyHeader as Fields>::FIELDS,
    <tcp::f::All as Fields>::FIELDS,
    <tunnel::f::All as Fields>::FIELDS,
    <tunnel::Gre as Fields>::FIELDS,
    <tunnel::Erspan2 as Fields>::FIELDS,
    <tunnel::Erspan3 as Fields>::FIELDS,
    <tunnel::Vxlan as Fields>::FIELDS,
    <udp::f::All as Fields>::FIELDS,
];

/// All names that a filter can use: fields and macros.
#[derive(Debug)]
pub struct Registry {
    by_name: Vec<Def>,
    macros: Vec<(String, String)>,
    ahead: fn(i64) -> i32,
}

impl Registry {
    /// All of [`DECLARED`]. A name declared in several messages is represented by its first declaration.
    pub fn new() -> Self {
        Self::of(DECLARED.iter().copied())
    }

    /// The fields of these lists.
    pub fn of(lists: impl IntoIterator<Item = &'static [Def]>) -> Self {
        let mut by_name: Vec<Def> = lists.into_iter().flatten().copied().filter(|d| d.name != "_").collect();
        by_name.sort_by_key(|d| d.name);
        by_name.dedup_by_key(|d| d.name);
        let mut registry = Self { by_name, macros: Vec::new(), ahead: |_| 0 };
        for (name, text) in wireshark::MACROS {
            registry.define(name, text);
        }
        registry
    }

    /// Defines or redefines a macro: `text` takes the arguments at `$1`, `$2` and so on.
    pub fn define(&mut self, name: &str, text: &str) {
        self.macros.retain(|(n, _)| n != name);
        self.macros.push((name.into(), text.into()));
    }

    /// Sets the zone of the times of day that filters name without one, UTC before: how many seconds it is ahead of UTC
    /// at a Unix time.
    pub fn set_local_time(&mut self, ahead: fn(i64) -> i32) {
        self.ahead = ahead;
    }

    /// See [`Registry::set_local_time`].
    pub(crate) fn ahead(&self) -> fn(i64) -> i32 {
        self.ahead
    }

    /// The text of a macro.
    pub fn macro_text(&self, name: &str) -> Option<&str> {
        self.macros.iter().find(|(n, _)| n == name).map(|(_, text)| &**text)
    }

    /// True if Wireshark has a protocol or field of this name that is not known here.
    pub fn is_wiresharks(&self, name: &str) -> bool {
        wireshark::has(name) && self.find(name).is_none()
    }

    /// Every field, ascending by name.
    pub fn all(&self) -> &[Def] {
        &self.by_name
    }

    /// The field of this name, of the name that an older Wireshark had for it, or of `rdmascope.` and this name: fields
    /// that Wireshark has not are ours, whatever protocol they are of.
    pub fn find(&self, name: &str) -> Option<Def> {
        let search = |name: &str| self.by_name.binary_search_by(|d| d.name.cmp(name)).ok().map(|i| self.by_name[i]);
        search(name).or_else(|| search(wireshark::today(name)?)).or_else(|| {
            let from = self.by_name.partition_point(|d| d.name < OURS);
            let ours = self.by_name[from..].iter().take_while(|d| d.name.starts_with(OURS));
            ours.copied().find(|d| &d.name[OURS.len()..] == name)
        })
    }

    /// The fields whose names begin with `prefix`, ascending.
    pub fn starting_with<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = Def> + 's {
        let from = self.by_name.partition_point(|d| d.name < prefix);
        self.by_name[from..].iter().copied().take_while(move |d| d.name.starts_with(prefix))
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::id_of;
    use std::collections::HashMap;

    #[test]
    fn names_are_well_formed_and_have_one_type_each() {
        let mut by_id: HashMap<u32, Def> = HashMap::new();
        for def in DECLARED.iter().copied().flatten().filter(|d| d.name != "_") {
            assert_eq!(def.id, id_of(def.name));
            assert!(def.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{}", def.name);
            assert!(!def.label.is_empty() && !def.spec.is_empty(), "{} needs a label and a section", def.name);
            assert!(
                def.values.len() <= 16 || def.values.windows(2).all(|w| w[0].0 < w[1].0),
                "the values of {} are not ascending",
                def.name
            );
            let first = by_id.entry(def.id).or_insert(def);
            assert_eq!(first.name, def.name, "two names share a number");
            assert_eq!((first.kind, first.base), (def.kind, def.base), "{} is declared with two types", def.name);
        }
    }

    #[test]
    fn finds_by_name_and_by_prefix() {
        let registry = Registry::new();
        assert_eq!(registry.find("smb_direct.credits.granted").map(|d| d.label), Some("CreditsGranted"));
        assert!(registry.find("smb_direct.credits").is_none());
        assert_eq!(registry.find("smb2.header").map(|d| d.name), Some("rdmascope.smb2.header"));
        assert_eq!(registry.find("smb2.getinfo_flags").map(|d| d.name), Some("smb2.query_info.flags"));
        assert_eq!(registry.starting_with("smb_direct.credits.").count(), 2);
    }
}
