//! `rdmascope peer`: an SMB Direct server of our own over iWARP or RoCEv2 in user space, or a card.

use super::replay::keep;
use crate::cli::{Peer, PeerFault, password};
use crate::live::{Signals, say};
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::keys::ntlm::nt_hash;
use rdmascope_replay::fault::FAULTS;
use rdmascope_replay::smb2::server::{Share, Users, addresses_of_host, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::stack::Config;
use rdmascope_replay::transport::KINDS;
use rdmascope_replay::wire::Wire;
use rdmascope_report::report::words::grouped;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at signals; the recording is written as often.
const TICK: Duration = Duration::from_millis(250);
/// Time in which connections end when we are to stop.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of connections at the same time.
const CONNECTIONS_MAX: usize = 256;
/// The same for one address.
const CONNECTIONS_OF_ONE_MAX: usize = 64;

pub(super) fn run(args: &Peer) -> Result<ExitCode> {
    if args.list_faults {
        let mut out = io::stdout().lock();
        for fault in FAULTS {
            let only = if fault.below { " (below SMB Direct: not over every transport)" } else { "" };
            writeln!(out, "{:20} {}{only}", fault.name, fault.text).context("standard output cannot be written")?;
        }
        for kind in KINDS {
            for fault in kind.faults {
                let more = format!("in packets: over {}; takes @WHEN", kind.name);
                writeln!(out, "{:20} {} ({more})", fault.name, fault.text)
                    .context("standard output cannot be written")?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let storage = match &args.share {
        Some(folder) => Storage::folder(folder).with_context(|| format!("{} cannot be shared", folder.display()))?,
        None => memory(),
    };
    let users = users(args)?;
    let mut transport = args.transport.open(&args.class)?;
    let name_of_fault = args.fault.map(|fault| match fault {
        PeerFault::Message(fault) => fault.name.to_owned(),
        PeerFault::Packet(fault) => fault.to_string(),
    });
    let fault = match args.fault {
        None => None,
        Some(PeerFault::Message(fault)) if fault.works_over(transport.kind()) => {
            transport = fault.over(transport);
            Some(fault)
        }
        Some(PeerFault::Message(fault)) => {
            bail!("--fault {}: --transport {} does not support this", fault.name, transport.kind().name)
        }
        Some(PeerFault::Packet(fault)) => {
            let name = transport.kind().name;
            let faulty = transport.with_packet_fault(fault, args.fault_seed);
            transport = faulty.with_context(|| format!("--fault {fault}: --transport {name} does not support this"))?;
            None
        }
    };
    let listen = args.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, transport.kind().port)));
    let writable = args.share.is_none() || args.allow_writes;
    let guests = matches!(users, Users::Guests);
    if guests && args.allow_writes && !listen.ip().is_loopback() && !args.yes_guests_may_write {
        bail!(
            "{} can be reached from other hosts, and everybody there could change {}: set RDMASCOPE_PASSWORD{}, or \
                give \
            --yes-guests-may-write",
            listen,
            args.share.as_deref().map_or_else(|| "the share".into(), |folder| folder.display().to_string()),
            if cfg!(feature = "kerberos") { ", or --keytab" } else { "" }
        );
    }
    let mut share = Share::new(&args.name, storage, writable, users);
    share.require_signing = !args.allow_unsigned;
    if listen.ip().is_unspecified() {
        share.addresses = addresses_of_host();
    }
    share.log = |what| drop(writeln!(io::stderr(), "rdmascope: {what}"));
    let signals = Signals::listen()?;
    share.stop = signals.stop.clone();
    let share = Arc::new(share);
    let wire = args.keep.as_deref().map(|path| keep(path, &[], args.force)).transpose()?;
    let config = Config { wire: wire.clone(), ..Config::patient(transport) };
    let acted = config.acted.clone();
    let mut listener = config.transport.listen(listen).with_context(|| format!("cannot listen on {listen}"))?;
    let mut out = io::stdout();
    writeln!(out, "listening on {}, share {}", listener.address(), args.name)?;
    out.flush()?;
    let open = Arc::new(Mutex::new(HashMap::new()));
    let mut connections = 0_u64;
    while !signals.stop.load(Ordering::Relaxed) {
        record(wire.as_ref());
        let Some(request) = listener.next(TICK)? else { continue };
        connections += 1;
        let peer = request.peer();
        let Some(permit) = Permit::take(&open, peer.map(|peer| peer.ip())) else {
            let _ = writeln!(io::stderr(), "rdmascope: {}: refused: too many connections", client(peer));
            continue;
        };
        let (share, config, fault) = (share.clone(), config.clone(), fault);
        thread::spawn(move || {
            let _permit = permit;
            let served = match fault {
                Some(fault) => fault.serve(request, share, &config),
                None => serve(request, share, &config),
            };
            if let Err(e) = served {
                let _ = writeln!(io::stderr(), "rdmascope: {}: {e}", client(peer));
            }
        });
    }
    drop(listener);
    let begun = Instant::now();
    while !open.lock().unwrap_or_else(PoisonError::into_inner).is_empty() && begun.elapsed() < END_WITHIN {
        thread::sleep(Duration::from_millis(10));
    }
    record(wire.as_ref());
    if let Some(name) = name_of_fault {
        let times = match acted.count() {
            0 => "never acted".to_owned(),
            1 => "acted once".to_owned(),
            n => format!("acted {} times", grouped(n)),
        };
        let requests =
            if connections == 1 { "1 connection".to_owned() } else { format!("{} connections", grouped(connections)) };
        say(&format!("fault {name} {times} in {requests}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands the recording to the operating system.
fn record(wire: Option<&Wire>) {
    if let Some(Err(e)) = wire.map(Wire::flush) {
        say(&format!("the recording is not complete: {e}"));
    }
}

fn client(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "a client".to_owned(), |peer| peer.to_string())
}

type Connections = Arc<Mutex<HashMap<Option<IpAddr>, usize>>>;

/// Permit for one more open connection; it is given back when this is dropped.
struct Permit {
    open: Connections,
    address: Option<IpAddr>,
}

impl Permit {
    /// `None` if there are too many connections, in total or from this client.
    fn take(open: &Connections, address: Option<IpAddr>) -> Option<Self> {
        let mut places = open.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = places.values().sum();
        // an address that is refused leaves nothing behind
        if all >= CONNECTIONS_MAX || places.get(&address).is_some_and(|own| *own >= CONNECTIONS_OF_ONE_MAX) {
            return None;
        }
        *places.entry(address).or_default() += 1;
        Some(Self { open: open.clone(), address })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut places = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = places.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                places.remove(&self.address);
            }
        }
    }
}

/// Users with a ticket, users with the password from the environment, or everybody.
fn users(args: &Peer) -> Result<Users> {
    #[cfg(feature = "kerberos")]
    if let Some(path) = &args.keytab {
        return Ok(Users::Kerberos(rdmascope_replay::kerberos::keytab::Keytab::read(path)?));
    }
    #[cfg(not(feature = "kerberos"))]
    let _ = args;
    password().map(|password| password.map_or(Users::Guests, |password| Users::Password(nt_hash(&password))))
}

/// Files to read: a small one, one of lines, and one that takes RDMA.
fn memory() -> Storage {
    let lines = |to: u32| (1..=to).flat_map(|n| format!("{n}\n").into_bytes());
    Storage::memory([
        ("hello.txt".to_owned(), b"hello\n".to_vec()),
        ("lines.txt".to_owned(), lines(20_000).collect()),
        ("big.bin".to_owned(), lines(1_500_000).take(8 << 20).collect()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_all_places_and_all_together_take_no_more_than_there_are() {
        let open = Connections::default();
        let address = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        let mut places: Vec<Permit> =
            (0..CONNECTIONS_OF_ONE_MAX).map(|_| Permit::take(&open, address(1)).expect("a place")).collect();
        assert!(Permit::take(&open, address(1)).is_none(), "one address has its share");
        places.extend(
            (places.len()..CONNECTIONS_MAX)
                .map(|n| Permit::take(&open, address(n as u32)).expect("another has a place")),
        );
        assert!((0..1000).all(|n| Permit::take(&open, address(1_000_000 + n)).is_none()), "all are taken");
        assert_eq!(
            open.lock().unwrap().len(),
            1 + CONNECTIONS_MAX - CONNECTIONS_OF_ONE_MAX,
            "those refused are not remembered"
        );
        places.pop();
        places.push(Permit::take(&open, address(2_000_000)).expect("one is free again"));
        places.clear();
        assert!(open.lock().unwrap().is_empty());
    }
}
