//! Lists a share, and reads a file over RDMA: `list ADDR:PORT SHARE USER PASSWORD FILE`.
#![forbid(unsafe_code)]

use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::channel::{Channel, Config};
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::smb2::ntlm::Credentials;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, share, user, password, file] = &arguments[..] else {
        return Err("list ADDR:PORT SHARE USER PASSWORD FILE".into());
    };
    let address: std::net::SocketAddr = address.parse()?;
    let mut config = Config::default();
    config.smbd.settle = 200_000_000;
    let channel = Channel::connect(address, &config, Duration::from_secs(5))?;
    let mut client = Client::negotiate(channel, Options::default())?;
    client.session_setup(&Credentials::new(user, password))?;
    client.tree_connect(&address.ip().to_string(), share)?;
    println!("{:?}, signed {}", client.dialect(), client.is_signed());
    let root = client.create("", access::READ, disposition::OPEN, 1)?;
    for entry in client.list(root.id, "*")? {
        println!("{:>12} {}", entry.end_of_file, entry.name);
    }
    client.close(root.id)?;
    let opened = client.create(file, access::READ, disposition::OPEN, 0)?;
    let length = u32::try_from(opened.end_of_file)?.min(client.max_read_size);
    let read = client.read_rdma(opened.id, 0, length, RdmaChannel::RDMA_V1_INVALIDATE)?;
    println!("{} bytes in {:?}, key invalidated: {}", read.data.len(), client.latency, read.invalidated);
    client.close(opened.id)?;
    client.finish()?;
    Ok(())
}
