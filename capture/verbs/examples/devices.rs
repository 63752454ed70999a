//! Lists the RDMA devices of this machine, their capabilities, and the result of opening a sniffer.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use rdmascope_verbs::{Sniffer, SnifferOptions, Verbs};

fn main() {
    let verbs = match Verbs::load() {
        Ok(verbs) => verbs,
        Err(e) => return println!("{e}"),
    };
    let devices = match verbs.devices() {
        Ok(devices) => devices,
        Err(e) => return println!("{e}"),
    };
    println!("{} devices", devices.len());
    for device in devices {
        println!("{} ({}{})", device.name, device.node, if device.iwarp { ", iWARP" } else { "" });
        match verbs.abilities(&device.name) {
            Ok(abilities) => println!("  {abilities:?}"),
            Err(e) => println!("  {e}"),
        }
        match Sniffer::open(verbs, &device.name, SnifferOptions { packets: 16, ..SnifferOptions::default() }) {
            Ok(sniffer) => println!("  sniffs: {sniffer:?}"),
            Err(e) => println!("  {e}"),
        }
    }
}
