//! A session with a server that shares the files of `interop/` (big.bin is the first 8 MiB of `seq 1 1500000`): lists
//! them, reads and writes over RDMA and inline, and compares every byte. `session ADDR:PORT SHARE USER PASSWORD
//! [WIRE.pcapng [TRANSPORT [MIB]]]`: over iWARP in user space, or the named transport. With MIB it only writes and
//! reads a file of that many MiB over RDMA. With a WIRE of `-` nothing is recorded.
#![forbid(unsafe_code)]

use rdmascope_dissector::wire::smb2::create::options::DELETE_ON_CLOSE;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Opened, Options, access, disposition};
use rdmascope_replay::smbd::Endpoint;
use rdmascope_replay::stack::{Config, SmbDirect};
use rdmascope_replay::transport::Kind;
use rdmascope_replay::wire::Wire;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::time::{Duration, Instant};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// SHA-256 of big.bin.
const BIG: &str = "072f5d86a449b865aabe65a533d7d9b90d9fcadbe79e8e3d01aa0140d5850912";

fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, share, user, password, more @ ..] = &arguments[..] else {
        return Err("session ADDR:PORT SHARE USER PASSWORD [WIRE.pcapng [TRANSPORT [MIB]]]".into());
    };
    let address: std::net::SocketAddr = address.parse()?;
    let transport = more.get(1).map_or("iwarp", String::as_str);
    let kind = Kind::named(transport).ok_or_else(|| format!("{transport}: no such transport"))?;
    let mut config = Config::patient((kind.open)()?);
    if let Some(wire) = more.first().filter(|wire| *wire != "-") {
        config.wire = Some(Wire::new(Box::new(File::create(wire)?), wire)?);
    }
    let channel = SmbDirect::connect(address, &config, Duration::from_secs(5))?;
    let mut client = Client::negotiate(channel, Options::default())?;
    client.session_setup(&Credentials::new(user, password))?;
    client.tree_connect(&address.ip().to_string(), share)?;
    println!("{:?}, signed {}", client.dialect(), client.is_signed());

    if let Some(mib) = more.get(2) {
        large(&mut client, mib.parse()?)?;
        client.leave()?;
        println!("all right");
        return Ok(());
    }

    let root = client.create("", access::READ, disposition::OPEN, 1)?;
    for entry in client.list(root.id, "*")? {
        println!("{:>12} {}", entry.end_of_file, entry.name);
    }
    client.close(root.id)?;

    for channel in [RdmaChannel::RDMA_V1_INVALIDATE, RdmaChannel::RDMA_V1, RdmaChannel::NONE] {
        let big = client.create("big.bin", access::READ, disposition::OPEN, 0)?;
        let begun = Instant::now();
        let read = whole(&mut client, big, channel)?;
        let hash: String = Sha256::digest(&read).iter().map(|b| format!("{b:02x}")).collect();
        if hash != BIG {
            return Err(format!("big.bin has hash {hash} and not {BIG}").into());
        }
        println!("{} bytes of big.bin {} in {:?}, hash right", read.len(), name(channel), begun.elapsed());
        client.close(big.id)?;
    }

    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    for channel in [RdmaChannel::RDMA_V1_INVALIDATE, RdmaChannel::RDMA_V1, RdmaChannel::NONE] {
        let file = client.create("rdmascope.tmp", access::READ | access::WRITE, disposition::OVERWRITE_IF, 0)?;
        let room = if channel == RdmaChannel::NONE { 65_536 } else { client.max_write_size.min(1 << 20) } as usize;
        for (n, piece) in data.chunks(room).enumerate() {
            let at = (n * room) as u64;
            let count = match channel {
                RdmaChannel::NONE => client.write_inline(file.id, at, piece)?,
                _ => client.write_rdma(file.id, at, piece.to_vec(), channel)?.0,
            };
            if count as usize != piece.len() {
                return Err(format!("{count} bytes of {} written", piece.len()).into());
            }
        }
        let written = Opened { end_of_file: data.len() as u64, ..file };
        if whole(&mut client, written, RdmaChannel::RDMA_V1_INVALIDATE)? != data {
            return Err("what was written is not what is read back".into());
        }
        println!("{} bytes written {} and read back", data.len(), name(channel));
        client.close(file.id)?;
    }
    let file = client.create("rdmascope.tmp", access::READ | access::DELETE, disposition::OPEN, DELETE_ON_CLOSE)?;
    client.close(file.id)?;
    client.echo()?;
    println!("{}", client.signatures);
    let wrong = client.signatures.wrong;
    for breach in client.channel().stack().smbd().map_or(&[][..], Endpoint::breaches) {
        println!("{breach}");
    }
    client.leave()?;
    if wrong > 0 {
        return Err(format!("{wrong} replies have a wrong signature").into());
    }
    println!("all right");
    Ok(())
}

/// Writes a file of `mib` MiB over RDMA, reads it over RDMA, and compares every byte.
fn large(client: &mut Client, mib: u64) -> Anything<()> {
    let room = client.max_write_size.min(client.max_read_size).min(1 << 20);
    let pieces = mib * (1 << 20) / u64::from(room);
    let rights = access::READ | access::WRITE | access::DELETE;
    let file = client.create("rdmascope.tmp", rights, disposition::OVERWRITE_IF, DELETE_ON_CLOSE)?;
    let begun = Instant::now();
    for n in 0..pieces {
        let (count, _) = client.write_rdma(
            file.id,
            n * u64::from(room),
            noise(n, room as usize),
            RdmaChannel::RDMA_V1_INVALIDATE,
        )?;
        if count != room {
            return Err(format!("{count} bytes of {room} written").into());
        }
    }
    println!("{mib} MiB written over RDMA in {} s", begun.elapsed().as_secs());
    let begun = Instant::now();
    for n in 0..pieces {
        let read = client.read_rdma(file.id, n * u64::from(room), room, RdmaChannel::RDMA_V1_INVALIDATE)?;
        if read.data != noise(n, room as usize) {
            return Err(format!("the {room} bytes from {} on are not what was written", n * u64::from(room)).into());
        }
    }
    println!("{mib} MiB read over RDMA in {} s, every byte right", begun.elapsed().as_secs());
    client.close(file.id)?;
    Ok(())
}

/// Bytes of a piece that no other piece has.
fn noise(piece: u64, length: usize) -> Vec<u8> {
    let mut state = (piece + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn whole(client: &mut Client, file: Opened, channel: RdmaChannel) -> Anything<Vec<u8>> {
    let mut all = Vec::new();
    let room = if channel == RdmaChannel::NONE { 65_536 } else { client.max_read_size.min(1 << 20) };
    while (all.len() as u64) < file.end_of_file {
        let length = room.min((file.end_of_file - all.len() as u64) as u32);
        let read = match channel {
            RdmaChannel::NONE => client.read_inline(file.id, all.len() as u64, length)?,
            _ => client.read_rdma(file.id, all.len() as u64, length, channel)?,
        };
        // keys of a device without memory windows cannot be invalidated, and the server is not asked to
        let invalidated = channel == RdmaChannel::RDMA_V1_INVALIDATE && client.channel().can_be_invalidated();
        if read.data.is_empty() || read.invalidated != invalidated {
            return Err(format!("{} bytes came, key invalidated: {}", read.data.len(), read.invalidated).into());
        }
        all.extend_from_slice(&read.data);
    }
    Ok(all)
}

fn name(channel: RdmaChannel) -> &'static str {
    match channel {
        RdmaChannel::NONE => "inside of messages",
        RdmaChannel::RDMA_V1 => "over RDMA",
        _ => "over RDMA, invalidated",
    }
}
