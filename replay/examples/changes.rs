//! A session that changes a share in all the ways that a replay repeats, and the list of a share's files. `changes
//! ADDR:PORT SHARE USER PASSWORD WIRE.pcapng` makes the changes over iWARP in user space, and records them; it expects
//! the files of `interop/`. Without WIRE it prints the length, the SHA-256 and the name of every file.
#![forbid(unsafe_code)]

use rdmascope_dissector::wire::smb2::FileId;
use rdmascope_dissector::wire::smb2::create::options::{DELETE_ON_CLOSE, DIRECTORY_FILE};
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, access, disposition};
use rdmascope_replay::stack::{Config, SmbDirect};
use rdmascope_replay::transport::Kind;
use rdmascope_replay::wire::Wire;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::time::Duration;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

const ALL: u32 = access::READ | access::WRITE | access::DELETE;
/// FILE_ATTRIBUTE_DIRECTORY, \[MS-FSCC\] 2.6.
const FOLDER: u32 = 0x10;
/// InfoType and class of the settings below, \[MS-SMB2\] 2.2.39 and \[MS-FSCC\] 2.4.
const FILE_INFO: u8 = 1;
const RENAME: u8 = 10;
const DISPOSITION: u8 = 13;
const END_OF_FILE: u8 = 20;

fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, share, user, password, more @ ..] = &arguments[..] else {
        return Err("changes ADDR:PORT SHARE USER PASSWORD [WIRE.pcapng]".into());
    };
    let address: std::net::SocketAddr = address.parse()?;
    let iwarp = Kind::named("iwarp").ok_or("iwarp: no such transport")?;
    let mut config = Config::patient((iwarp.open)()?);
    if let Some(wire) = more.first() {
        config.wire = Some(Wire::new(Box::new(File::create(wire)?), wire)?);
    }
    let channel = SmbDirect::connect(address, &config, Duration::from_secs(5))?;
    let mut client = Client::negotiate(channel, Options::default())?;
    client.session_setup(&Credentials::new(user, password))?;
    client.tree_connect(&address.ip().to_string(), share)?;
    if more.is_empty() {
        list(&mut client, "")?;
    } else {
        change(&mut client)?;
    }
    client.leave()?;
    Ok(())
}

/// Makes, writes, overwrites, shortens, renames and deletes.
fn change(client: &mut Client) -> Anything<()> {
    // written over RDMA by both kinds of channels, with a gap and an overlap
    let data: Vec<u8> = (0..2_000_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let room = client.max_write_size.min(1 << 20) as usize;
    let file = client.create("written.bin", ALL, disposition::CREATE, 0)?.id;
    for (n, piece) in data.chunks(room).enumerate() {
        let channel = if n % 2 == 0 { RdmaChannel::RDMA_V1_INVALIDATE } else { RdmaChannel::RDMA_V1 };
        client.write_rdma(file, (n * room) as u64, piece.to_vec(), channel)?;
    }
    client.write_inline(file, 2_100_000, b"behind a gap")?;
    client.write_inline(file, 1_000_000, b"over what was there")?;
    client.flush(file)?;
    client.close(file)?;

    // a file that was there is emptied, another is shortened in place
    let file = client.create("lines.txt", ALL, disposition::OVERWRITE_IF, 0)?.id;
    client.write_inline(file, 0, b"new lines")?;
    client.close(file)?;
    let file = client.create("hello.txt", ALL, disposition::OPEN, 0)?.id;
    client.set_info(file, FILE_INFO, END_OF_FILE, &2u64.to_le_bytes())?;
    client.close(file)?;

    // a folder with a file that gets another name, and one that is deleted by name
    let folder = client.create("folder", access::READ, disposition::CREATE, DIRECTORY_FILE)?.id;
    client.close(folder)?;
    let file = client.create("folder\\first", ALL, disposition::CREATE, 0)?.id;
    client.write_inline(file, 0, b"renamed")?;
    let name: Vec<u8> = "folder\\second".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = u32::try_from(name.len())?;
    client.set_info(file, FILE_INFO, RENAME, &[&[0; 16][..], &length.to_le_bytes(), &name].concat())?;
    client.close(file)?;
    for (name, options) in [("folder\\gone", 0), ("temporary", DELETE_ON_CLOSE)] {
        let file = client.create(name, ALL, disposition::CREATE, options)?.id;
        client.write_inline(file, 0, b"not for long")?;
        if options == 0 {
            client.set_info(file, FILE_INFO, DISPOSITION, &[1])?;
        }
        client.close(file)?;
    }

    // as cifs.ko asks for a file: three requests in one message
    client.begin_compound(true);
    let opened = client.start_create("hello.txt", access::READ, disposition::OPEN, 0)?;
    let asked = client.start_query_info(FileId::PREVIOUS, FILE_INFO, 5, 24)?;
    let closed = client.start_close(FileId::PREVIOUS)?;
    client.end_compound()?;
    let length = client.finish_create(opened)?.end_of_file;
    client.finish_success(asked)?;
    client.finish_success(closed)?;
    if length != 2 {
        return Err(format!("hello.txt has {length} bytes after it was shortened to 2").into());
    }
    Ok(())
}

/// Prints the files of a folder, and of those in it.
fn list(client: &mut Client, path: &str) -> Anything<()> {
    let folder = client.create(path, access::READ, disposition::OPEN, DIRECTORY_FILE)?.id;
    let mut entries = client.list(folder, "*")?;
    client.close(folder)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries.into_iter().filter(|entry| entry.name != "." && entry.name != "..") {
        let path = if path.is_empty() { entry.name } else { format!("{path}\\{}", entry.name) };
        if entry.attributes & FOLDER != 0 {
            list(client, &path)?;
            continue;
        }
        let file = client.create(&path, access::READ, disposition::OPEN, 0)?;
        let (mut hash, mut at) = (Sha256::new(), 0);
        while at < file.end_of_file {
            let length = (file.end_of_file - at).min(65_536) as u32;
            let read = client.read_inline(file.id, at, length)?.data;
            if read.is_empty() {
                return Err(format!("{path} ends at {at} of {} bytes", file.end_of_file).into());
            }
            hash.update(&read);
            at += read.len() as u64;
        }
        client.close(file.id)?;
        let hash: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        println!("{:>9} {hash} {}", file.end_of_file, path.replace('\\', "/"));
    }
    Ok(())
}
