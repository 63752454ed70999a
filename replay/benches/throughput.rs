//! Throughput of client and server over iWARP and over RoCEv2 in user space: `cargo bench -p rdmascope-replay`. Rates
//! count payload; CPU time is that of the whole process, both ends and the kernel's part.
#![forbid(unsafe_code)]

use rdmascope_dissector::wire::smb2::FileId;
use rdmascope_dissector::wire::smb2::rdma_channel::Channel as RdmaChannel;
use rdmascope_replay::iwarp::{self, Event, Iwarp};
use rdmascope_replay::roce::packet::Path;
use rdmascope_replay::roce::{self, Endpoint, Numbers, Roce};
use rdmascope_replay::smb2::Credentials;
use rdmascope_replay::smb2::client::{Client, Options, Pending, access, disposition};
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::{Config, SmbDirect};
use rdmascope_replay::transport::packet_fault::Tally;
use rdmascope_replay::transport::{self, Clock, Fabric, Handle, Listener, Opened, Rights, Setup};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of RoCEv2: the client has 127.0.0.1, and each end a UDP port of its own, as two processes have.
const SERVER: &str = "127.0.0.2:0";
const GIB: f64 = (1u64 << 30) as f64;

fn main() {
    // `-- roce` leaves iWARP out
    let only_roce = std::env::args().any(|argument| argument == "roce");
    if !only_roce {
        over_iwarp();
    }
    for mtu in [4096, 1024] {
        for size in [64 << 10, 1 << 20] {
            measure(&format!("RDMA Read {:>4} KiB, no socket, RoCE, MTU {mtu}", size >> 10), 1 << 30, || {
                roce_in_memory(size, mtu)
            });
        }
    }
    for mtu in [4096, 1024] {
        match Sockets::open(mtu) {
            Ok(mut sockets) => {
                measure(&format!("RDMA Read 1024 KiB, UDP, RoCE, MTU {mtu}"), 2 << 30, || {
                    sockets.reads(1 << 20, 2 << 10, 4)
                });
                if mtu == 4096 {
                    operations("RDMA Read of 8 bytes, one at a time", 50_000, || sockets.reads(8, 50_000, 1));
                    operations("RDMA Read of 8 bytes, 16 at once", 200_000, || sockets.reads(8, 200_000, 16));
                }
            }
            Err(e) => println!("RoCEv2 on the loopback network: not measured, {e}"),
        }
    }
    over_roce();
}

/// Two ends of RoCEv2 on the loopback network, and nothing above them.
struct Sockets {
    end: Opened,
    setup: Setup,
    theirs: Handle,
    ours: Handle,
}

impl Sockets {
    fn open(path_mtu: u16) -> std::io::Result<Self> {
        let fabric = Roce { path_mtu: Some(path_mtu), ..Roce::default() };
        let setup = || Setup {
            receives: 16,
            receive_size: 1024,
            send_size: 1024,
            timeout: Duration::from_secs(5),
            wire: None,
            clock: Clock::start(),
            acted: Tally::default(),
        };
        let mut listener = fabric.listen(SERVER.parse().unwrap())?;
        let address = listener.address();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let setup = setup();
            let request = listener.next(Duration::from_secs(60)).unwrap().unwrap();
            let mut end = request.accept(&setup).unwrap();
            tell.send(end.transport.register(vec![7; 1 << 20], Rights { read: true, write: false }).unwrap()).unwrap();
            while !turn(&mut end, &setup, |event| matches!(event, transport::Event::Closed(_))) {}
        });
        let setup = setup();
        let mut end = fabric.connect(address, &setup)?;
        while !end.transport.is_established() {
            turn(&mut end, &setup, |_| false);
        }
        let ours = end.transport.register(vec![0; 1 << 20], Rights::LOCAL).unwrap();
        Ok(Self { theirs: told.recv().unwrap(), end, setup, ours })
    }

    /// Makes this number of reads, some of them at the same time.
    fn reads(&mut self, size: u32, count: u32, at_once: u32) {
        let (mut begun, mut done) = (0, 0);
        while done < count {
            while begun < count && begun - done < at_once {
                self.end
                    .transport
                    .read(self.ours.key, self.ours.offset, self.theirs.key, self.theirs.offset, size)
                    .unwrap();
                begun += 1;
            }
            turn(&mut self.end, &self.setup, |event| {
                assert!(!matches!(event, transport::Event::Closed(_)), "{event:?}");
                done += u32::from(matches!(event, transport::Event::ReadDone { .. }));
                false
            });
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.end.driver.flush(&self.setup.clock, &mut *self.end.transport);
    }
}

/// Moves one end, waits if nothing moves, and passes on its events. Returns true if `each` does so for one of them.
fn turn(end: &mut Opened, setup: &Setup, mut each: impl FnMut(transport::Event) -> bool) -> bool {
    let (transport, driver) = (&mut *end.transport, &mut *end.driver);
    let now = setup.clock.now();
    if transport.poll_timeout().is_some_and(|at| now >= at) {
        transport.handle_timeout(now);
    }
    let moved = driver.drive(&setup.clock, transport).unwrap();
    let mut any = false;
    let mut said = false;
    while let Some(event) = transport.poll_event() {
        any = true;
        said |= each(event);
    }
    if !moved && !any {
        let timer =
            transport.poll_timeout().map(|at| Duration::from_nanos(at.saturating_sub(setup.clock.now()).max(0) as u64));
        driver.wait(transport, timer.unwrap_or(Duration::from_secs(1))).unwrap();
    }
    said
}

fn over_iwarp() {
    for crc in [false, true] {
        let name = if crc { "CRC on " } else { "CRC off" };
        for size in [64 << 10, 1 << 20] {
            measure(&format!("RDMA Read {:>4} KiB, no socket, {name}", size >> 10), 4 << 30, || {
                in_memory(size, crc, true)
            });
            measure(&format!("RDMA Write {:>3} KiB, no socket, {name}", size >> 10), 4 << 30, || {
                in_memory(size, crc, false)
            });
        }
    }
    for crc in [false, true] {
        let name = if crc { "CRC on " } else { "CRC off" };
        let mut client = client(crc);
        let file = client.create("big", access::READ | access::WRITE, disposition::OPEN, 0).unwrap().id;
        for size in [64 << 10, 1 << 20] {
            measure(&format!("SMB2 READ {:>4} KiB, TCP, {name}", size >> 10), 2 << 30, || {
                reads(&mut client, file, size, 2 << 30)
            });
        }
        measure(&format!("SMB2 WRITE 1024 KiB, TCP, {name}"), 1 << 30, || writes(&mut client, file));
        client.close(file).unwrap();
        client.leave().unwrap();
    }
    small(&mut client(true));
}

/// The same over RoCEv2 on the loopback network, if UDP port 4791 is free.
fn over_roce() {
    for path_mtu in [4096, 1024] {
        let roce = Roce { path_mtu: Some(path_mtu), ..Roce::default() };
        let address = match Config::over(roce.clone()).transport.listen(SERVER.parse().unwrap()) {
            Ok(listener) => serve_one(listener, Config::over(roce.clone())),
            Err(e) => return println!("RoCEv2 on the loopback network: not measured, {e}"),
        };
        let mut client = client_of(address, &Config::over(roce));
        let file = client.create("big", access::READ | access::WRITE, disposition::OPEN, 0).unwrap().id;
        for size in [64 << 10, 1 << 20] {
            measure(&format!("SMB2 READ {:>4} KiB, RoCE, MTU {path_mtu}", size >> 10), 2 << 30, || {
                reads(&mut client, file, size, 2 << 30)
            });
        }
        measure(&format!("SMB2 WRITE 1024 KiB, RoCE, MTU {path_mtu}"), 1 << 30, || writes(&mut client, file));
        client.close(file).unwrap();
        if path_mtu == 4096 {
            small(&mut client);
        }
        client.leave().unwrap();
    }
}

/// 1 GiB in pieces of 1 MiB.
fn writes(client: &mut Client, file: FileId) {
    for n in 0..1024u64 {
        let data = vec![n as u8; 1 << 20];
        client.write_rdma(file, (n % 16) << 20, data, RdmaChannel::RDMA_V1_INVALIDATE).unwrap();
    }
}

/// Reads this number of bytes in requests of `size`, four at a time.
fn reads(client: &mut Client, file: FileId, size: u32, bytes: u64) {
    let mut on_the_way: VecDeque<Pending> = VecDeque::new();
    for n in 0..bytes / u64::from(size) {
        if on_the_way.len() == 4 {
            let read = client.finish_read(on_the_way.pop_front().unwrap()).unwrap();
            assert_eq!(read.data.len(), size as usize);
        }
        let at = n * u64::from(size) % (16 << 20);
        on_the_way.push_back(client.start_read(file, at, size, RdmaChannel::RDMA_V1_INVALIDATE).unwrap());
    }
    on_the_way.into_iter().for_each(|p| drop(client.finish_read(p).unwrap()));
}

/// Operations with little data.
fn small(client: &mut Client) {
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
            on_the_way
                .push_back(client.start_read(file, n % 4096 * 4096, 4096, RdmaChannel::RDMA_V1_INVALIDATE).unwrap());
        }
        on_the_way.into_iter().for_each(|p| drop(client.finish_read(p).unwrap()));
    });
    operations("CREATE and CLOSE", 10_000, || {
        for _ in 0..5_000 {
            let file = client.create("big", access::READ, disposition::OPEN, 0).unwrap().id;
            client.close(file).unwrap();
        }
    });
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
    let (mut one, mut other) = (iwarp::Endpoint::initiator(0, config.clone()), iwarp::Endpoint::responder(0, config));
    let drive = |one: &mut iwarp::Endpoint, other: &mut iwarp::Endpoint| {
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

/// Two ends of RoCEv2 and nothing between them: 1 GiB read by one of the other, in operations of `size`.
fn roce_in_memory(size: u32, path_mtu: u16) {
    let config = roce::Config { path_mtu, ..roce::Config::default() };
    let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().unwrap());
    let paths = [Path { local: a, remote: b, source_port: 0xc001 }, Path { local: b, remote: a, source_port: 0xc002 }];
    let numbers = |end: u32| Numbers { qp: 0x11 + end, comm_id: 0x1000 + end, psn: 5 };
    let mut now = 0;
    let mut bytes = Vec::new();
    let mut one = Endpoint::connect(now, config.clone(), paths[0], numbers(0), 40_000, 445, b"");
    one.poll_transmit(now, &mut bytes).unwrap();
    let (_, request) = roce::addressed(&bytes).unwrap();
    let mut other = Endpoint::accept(now, config, paths[1], numbers(1), request).unwrap();
    let mut drive = |one: &mut Endpoint, other: &mut Endpoint, until: &dyn Fn(&mut Endpoint) -> bool| {
        while !until(one) {
            let mut moved = false;
            for back in [false, true] {
                let (from, to) = if back { (&mut *other, &mut *one) } else { (&mut *one, &mut *other) };
                loop {
                    bytes.clear();
                    if from.poll_transmit(now, &mut bytes).is_none() {
                        break;
                    }
                    moved = true;
                    to.handle_datagram(now, from.path().source_port, false, &bytes);
                }
            }
            while other.poll_event().is_some() {}
            if !moved {
                now = [one.poll_timeout(), other.poll_timeout()].into_iter().flatten().min().unwrap().max(now);
                one.handle_timeout(now);
                other.handle_timeout(now);
            }
        }
    };
    drive(&mut one, &mut other, &|one| one.is_established());
    let theirs = other.register(vec![7; size as usize], Rights { read: true, write: true }).unwrap();
    let ours = one.register(vec![0; size as usize], Rights::LOCAL).unwrap();
    for _ in 0..(1u64 << 30) / u64::from(size) {
        one.read(ours.key, ours.offset, theirs.key, theirs.offset, size).unwrap();
        drive(&mut one, &mut other, &|one| loop {
            match one.poll_event() {
                Some(roce::Event::ReadDone { .. }) => return true,
                Some(roce::Event::Closed(why)) => panic!("{why:?}"),
                Some(_) => {}
                None => return false,
            }
        });
    }
}

fn client(crc: bool) -> Client {
    let config = Config::over(Iwarp(iwarp::Config { crc, ..iwarp::Config::default() }));
    let address = serve_one(config.transport.listen("127.0.0.1:0".parse().unwrap()).unwrap(), config.clone());
    client_of(address, &config)
}

fn client_of(address: SocketAddr, config: &Config) -> Client {
    let channel = SmbDirect::connect(address, config, Duration::from_secs(5)).unwrap();
    let mut client = Client::negotiate(channel, Options::default()).unwrap();
    client.session_setup(&Credentials::Anonymous).unwrap();
    client.tree_connect("127.0.0.1", "share").unwrap();
    client
}

fn serve_one(mut listener: Box<dyn Listener>, config: Config) -> SocketAddr {
    let share =
        Arc::new(Share::new("share", Storage::memory([("big".to_owned(), vec![5; 16 << 20])]), true, Users::Guests));
    let address = listener.address();
    std::thread::spawn(move || {
        let request = listener.next(Duration::from_secs(60)).unwrap().unwrap();
        serve(request, share, &config).unwrap();
    });
    address
}
