//! How fast the active side is: `cargo bench -p rdmascope-replay`. Rates are payload; CPU is that of the whole process, both ends and the kernel's part.
#![forbid(unsafe_code)]

use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::channel::{Channel, Config};
use rdmascope_replay::iwarp::{self, Connection, Event, Iwarp};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, Pending, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::transport::Rights;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GIB: f64 = (1u64 << 30) as f64;

fn main() {
    for crc in [false, true] {
        let name = if crc { "CRC on " } else { "CRC off" };
        for size in [64 << 10, 1 << 20] {
            measure(&format!("RDMA Read {:>4} KiB, no socket, {name}", size >> 10), 4 << 30, || in_memory(size, crc, true));
            measure(&format!("RDMA Write {:>3} KiB, no socket, {name}", size >> 10), 4 << 30, || in_memory(size, crc, false));
        }
    }
    for crc in [false, true] {
        let name = if crc { "CRC on " } else { "CRC off" };
        let mut client = client(crc);
        let file = client.create("big", access::READ | access::WRITE, disposition::OPEN, 0).unwrap().id;
        for size in [64 << 10, 1 << 20] {
            measure(&format!("SMB2 READ {:>4} KiB, TCP, {name}", size >> 10), 2 << 30, || {
                let mut on_the_way: VecDeque<Pending> = VecDeque::new();
                for n in 0..(2u64 << 30) / u64::from(size) {
                    if on_the_way.len() == 4 {
                        let read = client.finish_read(on_the_way.pop_front().unwrap()).unwrap();
                        assert_eq!(read.data.len(), size as usize);
                    }
                    let at = n * u64::from(size) % (16 << 20);
                    on_the_way.push_back(client.start_read(file, at, size, RdmaChannel::RDMA_V1_INVALIDATE).unwrap());
                }
                on_the_way.into_iter().for_each(|p| drop(client.finish_read(p).unwrap()));
            });
        }
        measure(&format!("SMB2 WRITE 1024 KiB, TCP, {name}"), 1 << 30, || {
            for n in 0..1024u64 {
                let data = vec![n as u8; 1 << 20];
                client.write_rdma(file, (n % 16) << 20, data, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
            }
        });
        client.close(file).unwrap();
        client.leave().unwrap();
    }
    let mut client = client(true);
    let file = client.create("big", access::READ, disposition::OPEN, 0).unwrap().id;
    operations("ECHO, one at a time", 20_000, || (0..20_000).for_each(|_| client.echo().unwrap()));
    operations("READ 4 KiB inline, one at a time", 20_000, || {
        (0..20_000u64).for_each(|n| drop(client.read_inline(file, n % 4096 * 4096, 4096).unwrap()));
    });
    operations("READ 4 KiB inline, 32 at once", 50_000, || {
        let mut on_the_way: VecDeque<Pending> = VecDeque::new();
        for n in 0..50_000u64 {
            if on_the_way.len() == 32 {
                drop(client.finish_read(on_the_way.pop_front().unwrap()).unwrap());
            }
            on_the_way.push_back(client.start_read(file, n % 4096 * 4096, 4096, RdmaChannel::NONE).unwrap());
        }
        on_the_way.into_iter().for_each(|p| drop(client.finish_read(p).unwrap()));
    });
    operations("READ 4 KiB over RDMA, 32 at once", 50_000, || {
        let mut on_the_way: VecDeque<Pending> = VecDeque::new();
        for n in 0..50_000u64 {
            if on_the_way.len() == 32 {
                drop(client.finish_read(on_the_way.pop_front().unwrap()).unwrap());
            }
            on_the_way.push_back(client.start_read(file, n % 4096 * 4096, 4096, RdmaChannel::RDMA_V1_INVALIDATE).unwrap());
        }
        on_the_way.into_iter().for_each(|p| drop(client.finish_read(p).unwrap()));
    });
    operations("CREATE and CLOSE", 10_000, || {
        for _ in 0..5_000 {
            let file = client.create("big", access::READ, disposition::OPEN, 0).unwrap().id;
            client.close(file).unwrap();
        }
    });
    client.leave().unwrap();
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn measure(name: &str, bytes: u64, run: impl FnOnce()) {
    let (begun, before) = (Instant::now(), cpu());
    run();
    let (wall, used) = (begun.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
    let gib = bytes as f64 / GIB;
    println!(
        "{name:42} {:6.2} GB/s   {:6.2} GB/s per core   {:6.0} ms CPU per GiB",
        bytes as f64 / 1e9 / wall,
        bytes as f64 / 1e9 / used,
        used / gib * 1e3
    );
}

fn operations(name: &str, count: u64, run: impl FnOnce()) {
    let (begun, before) = (Instant::now(), cpu());
    run();
    let (wall, used) = (begun.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
    println!("{name:42} {:8.0} operations/s   {:6.1} µs CPU each", count as f64 / wall, used * 1e6 / count as f64);
}

/// Two ends and nothing between them: 4 GiB read or written by one of the other, in operations of `size`.
fn in_memory(size: u32, crc: bool, read: bool) {
    let config = iwarp::Config { crc, ..iwarp::Config::default() };
    let (mut one, mut other) = (Connection::initiator(0, config.clone()), Connection::responder(0, config));
    let drive = |one: &mut Connection, other: &mut Connection| {
        loop {
            let mut moved = false;
            while let Some(bytes) = one.poll_transmit() {
                moved = true;
                bytes.chunks(1 << 18).for_each(|piece| other.handle_bytes(0, piece));
            }
            while let Some(bytes) = other.poll_transmit() {
                moved = true;
                bytes.chunks(1 << 18).for_each(|piece| one.handle_bytes(0, piece));
            }
            if !moved {
                return;
            }
        }
    };
    drive(&mut one, &mut other);
    let theirs = other.register(vec![7; size as usize], Rights { read: true, write: true }).unwrap();
    let ours = one.register(vec![0; size as usize], Rights::LOCAL).unwrap();
    let data = vec![1; size as usize];
    for _ in 0..(4u64 << 30) / u64::from(size) {
        if read {
            one.read(ours.key, ours.offset, theirs.key, theirs.offset, size).unwrap();
        } else {
            one.write(theirs.key, theirs.offset, &data).unwrap();
        }
        drive(&mut one, &mut other);
    }
    while let Some(event) = one.poll_event() {
        assert!(!matches!(event, Event::Closed(_)), "{event:?}");
    }
}

fn client(crc: bool) -> Client {
    let config = Config::over(Iwarp(iwarp::Config { crc, ..iwarp::Config::default() }));
    let address = peer(config.clone());
    let channel = Channel::connect(address, &config, Duration::from_secs(5)).unwrap();
    let mut client = Client::negotiate(channel, Options::default()).unwrap();
    client.session_setup(&Credentials::Anonymous).unwrap();
    client.tree_connect("127.0.0.1", "share").unwrap();
    client
}

fn peer(config: Config) -> SocketAddr {
    let share = Arc::new(Share::new("share", Storage::memory([("big".to_owned(), vec![5; 16 << 20])]), true, Users::Guests));
    let mut listener = config.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    std::thread::spawn(move || {
        let request = listener.next(Duration::from_secs(60)).unwrap().unwrap();
        serve(request, share, &config).unwrap();
    });
    address
}
