//! RDMA devices as the kernel shows them below `/sys/class/infiniband`: the devices and their counters.
//!
//! Spec: Linux `Documentation/ABI/stable/sysfs-class-infiniband`. The root is an argument, so that tests can have
//! devices.

use std::fs;
use std::path::Path;

pub use crate::hardware::Counter;

/// Path at which the kernel lists RDMA devices.
pub const SYS: &str = "/sys/class/infiniband";
/// Maximum number of devices, of ports, and of counters per port.
const MANY: usize = 256;

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u32,
    /// `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// `ACTIVE` and its like.
    pub state: String,
    /// The network interface it belongs to, if the kernel reports one.
    pub netdev: Option<String>,
    /// True if it is made by the kernel in software (rxe, siw), so that its frames pass the network interface.
    pub is_software: bool,
}

/// All ports, by name.
pub fn ports(root: &Path) -> Vec<Port> {
    let mut found = Vec::new();
    for device in entries(root) {
        let folder = root.join(&device);
        let is_software = folder.join("parent").exists()
            || fs::canonicalize(&folder).is_ok_and(|p| p.components().any(|c| c.as_os_str() == "virtual"));
        for port in entries(&folder.join("ports")) {
            let path = folder.join("ports").join(&port);
            let Ok(number) = port.parse() else { continue };
            let state = text(&path.join("state"));
            found.push(Port {
                device: device.clone(),
                port: number,
                link_layer: text(&path.join("link_layer")),
                state: state.split_once(": ").map_or(state.clone(), |(_, s)| s.to_owned()),
                netdev: Some(text(&path.join("gid_attrs/ndevs/0")))
                    .filter(|n| !n.is_empty())
                    .or_else(|| Some(text(&folder.join("parent"))).filter(|n| !n.is_empty())),
                is_software,
            });
        }
    }
    found
}

/// `hw_counters` of all ports, in the order of their names; devices without such counters are left out.
pub fn counters(root: &Path) -> Vec<Counter> {
    let mut found = Vec::new();
    for device in entries(root) {
        for port in entries(&root.join(&device).join("ports")) {
            let Ok(number) = port.parse() else { continue };
            let folder = root.join(&device).join("ports").join(&port).join("hw_counters");
            for name in entries(&folder) {
                // "lifespan" is not a count but how long the driver keeps one
                if name == "lifespan" {
                    continue;
                }
                if let Ok(value) = text(&folder.join(&name)).parse() {
                    found.push(Counter { device: device.clone(), port: number, name, value });
                }
            }
        }
    }
    found
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(all) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        all.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).take(MANY).collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).map_or_else(|_| String::new(), |t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_counters_are_read_from_their_files() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("mlx5_0/ports/1/state", "4: ACTIVE\n");
        write("mlx5_0/ports/1/link_layer", "Ethernet\n");
        write("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2\n");
        write("mlx5_0/ports/1/hw_counters/out_of_sequence", "17\n");
        write("mlx5_0/ports/1/hw_counters/lifespan", "10\n");
        write("mlx5_0/ports/1/hw_counters/odd", "not a number\n");
        write("rxe0/parent", "eth0\n");
        write("rxe0/ports/1/state", "1: DOWN\n");
        let ports = ports(root.path());
        assert_eq!(
            (ports[0].device.as_str(), ports[0].state.as_str(), ports[0].netdev.as_deref()),
            ("mlx5_0", "ACTIVE", Some("eth2"))
        );
        assert!(!ports[0].is_software && ports[1].is_software);
        assert_eq!(ports[1].netdev.as_deref(), Some("eth0"));
        let counter = Counter { device: "mlx5_0".into(), port: 1, name: "out_of_sequence".into(), value: 17 };
        assert_eq!(counters(root.path()), [counter]);
        assert!(super::ports(Path::new("/no/such/folder")).is_empty());
    }
}
