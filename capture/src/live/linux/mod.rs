//! Live capture on Linux: packet sockets, RDMA cards through libibverbs, capabilities. `elsewhere.rs` has the same
//! names for other systems.

mod interface;
mod packet;
mod privileges;
#[doc(hidden)]
pub mod send;
mod sniffer;

use std::path::Path;

pub use packet::PacketSocket;
pub(super) use packet::poll;
pub use privileges::drop_privileges;

use super::{Counters, Dropped, Event, Frame, Listed, Live, Options, RING_BYTES_MIN, Ready, filter, rdma, spread};
use crate::LinkType;
use crate::error::Result;

/// Expands names of interfaces: `any` means all that are up, unless the kernel has an interface of that name.
pub(super) fn expand(names: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        let meant = match name.as_str() {
            "any" if interface::facts("any").is_none() => interface::names()
                .into_iter()
                .filter(|n| interface::facts(n).is_some_and(|f| f.is_up() && f.link_type().is_some()))
                .collect(),
            _ => vec![name.clone()],
        };
        for name in meant {
            if !all.contains(&name) {
                all.push(name);
            }
        }
    }
    all
}

/// Opens an interface, or a port of an RDMA card.
pub(super) fn open_one(name: &str, options: &Options) -> Result<Vec<Box<dyn Live>>> {
    let device = name.split_once(':').map_or(name, |(device, _)| device);
    if interface::facts(name).is_none()
        && (options.verbs.is_some() || rdma::ports(Path::new(rdma::SYS)).iter().any(|p| p.device == device))
    {
        return Ok(vec![Box::new(sniffer::Card::open(name, options)?)]);
    }
    let number = if options.by_queues { options.sockets.min(interface::queues(name)) } else { options.sockets };
    if number <= 1 {
        return Ok(vec![Box::new(PacketSocket::open(name, options, None)?)]);
    }
    let mut options = options.clone();
    if options.by_queues {
        options.ring_bytes = (options.ring_bytes / number).max(RING_BYTES_MIN.min(options.ring_bytes));
    }
    let mut group = None;
    let mut sockets: Vec<Box<dyn Live>> = Vec::new();
    for _ in 0..number {
        sockets.push(Box::new(PacketSocket::open(name, &options, Some(&mut group))?));
    }
    Ok(sockets)
}

/// The version of the kernel.
pub(super) fn release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(format!("Linux {}", text.trim()))
}

/// Everything that can be captured from, and why not. `rdma_root` is [`rdma::SYS`], but for tests.
pub fn list(rdma_root: &Path) -> Vec<Listed> {
    let ports = rdma::ports(rdma_root);
    let permitted = packet::socket(libc::SOCK_RAW).is_ok();
    let needs = (!permitted).then(|| "needs CAP_NET_RAW".to_owned());
    let mut all = Vec::new();
    for facts in interface::names().iter().filter_map(|name| interface::facts(name)) {
        let on_it = || ports.iter().filter(|p| p.netdev.as_deref() == Some(&facts.name));
        let kind = match facts.link_type() {
            _ if facts.is_loopback() => "loopback",
            Some((LinkType::ETHERNET, _)) => "Ethernet",
            Some(_) if facts.hardware == libc::ARPHRD_INFINIBAND => "IP over InfiniBand",
            Some(_) => "IP",
            None => "other",
        };
        let hardware: Vec<&str> = on_it().filter(|p| !p.is_software).map(|p| p.device.as_str()).collect();
        let software: Vec<&str> = on_it().filter(|p| p.is_software).map(|p| p.device.as_str()).collect();
        let mut sees = match kind {
            "loopback" => "traffic of this host with itself".to_owned(),
            "IP over InfiniBand" => "IP packets only; not RDMA".to_owned(),
            _ => "frames of this host, and of a mirror that ends here".to_owned(),
        };
        if !software.is_empty() {
            sees += &format!("; RDMA of {}", software.join(", "));
        }
        if !hardware.is_empty() {
            sees += &format!("; not what {} moves past the kernel", hardware.join(", "));
        }
        let cannot = match facts.link_type() {
            None => Some(format!("its hardware type {} is not supported", facts.hardware)),
            Some(_) => needs.clone(),
        };
        all.push(Listed { name: facts.name.clone(), kind: kind.to_owned(), is_up: facts.is_up(), sees, cannot });
    }
    for port in &ports {
        let (sees, cannot) = match (port.is_software, &port.netdev) {
            (true, Some(netdev)) => {
                ("made in software; its frames pass the interface".to_owned(), Some(format!("capture from {netdev}")))
            }
            (true, None) => ("made in software".to_owned(), Some("capture from its network interface".to_owned())),
            (false, _) => {
                let cannot = match needs.clone() {
                    Some(needs) => Some(needs),
                    None => sniffer::Card::open(&format!("{}:{}", port.device, port.port), &Options::default())
                        .err()
                        .map(|e| e.problem().to_string()),
                };
                ("RDMA that the device moves past the kernel".to_owned(), cannot)
            }
        };
        all.push(Listed {
            name: port.device.clone(),
            kind: format!(
                "RDMA device, port {}, {}",
                port.port,
                if port.link_layer.is_empty() { "link unknown" } else { &port.link_layer }
            ),
            is_up: port.state == "ACTIVE",
            sees,
            cannot,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_says_what_it_sees_and_why_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("mlx5_0/ports/1/gid_attrs/ndevs/0", "lo\n");
        write("mlx5_0/ports/1/link_layer", "Ethernet\n");
        write("rxe0/ports/1/gid_attrs/ndevs/0", "lo\n");
        write("rxe0/parent", "lo\n");
        let all = list(root.path());
        let lo = all.iter().find(|l| l.name == "lo").unwrap();
        assert!(lo.sees.contains("RDMA of rxe0") && lo.sees.contains("not what mlx5_0"), "{}", lo.sees);
        let rxe = all.iter().find(|l| l.name == "rxe0").unwrap();
        assert_eq!(rxe.cannot.as_deref(), Some("capture from lo"));
        let mlx = all.iter().find(|l| l.name == "mlx5_0").unwrap();
        assert!(mlx.kind.contains("Ethernet") && mlx.cannot.is_some());
        let missing =
            crate::live::open(&["no-such-if".to_owned()], &Options::default(), Default::default()).unwrap_err();
        assert!(missing.to_string().starts_with("no-such-if: no such interface"), "{missing}");
    }
}
