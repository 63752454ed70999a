//! `rdmascope peer`: an SMB Direct server of our own over userspace iWARP, or a card.

use super::replay::keep;
use crate::cli::Peer;
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::keys::ntlm::nt_hash;
use rdmascope_replay::channel::Config;
use rdmascope_replay::fault::FAULTS;
#[cfg(target_os = "linux")]
use rdmascope_replay::smb2::server::serve_card;
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use rdmascope_replay::transport::Transport;
use std::io::{self, Write};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Connections at the same time at most.
const CONNECTIONS_MAX: usize = 256;

pub(super) fn run(args: &Peer) -> Result<ExitCode> {
    if args.list_faults {
        let mut out = io::stdout().lock();
        for fault in FAULTS {
            let only = if fault.works_over_cards() { "" } else { " (over iWARP in user space only)" };
            writeln!(out, "{:17} {}{only}", fault.name, fault.text).context("standard output cannot be written")?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let storage = match &args.share {
        Some(folder) => Storage::folder(folder).with_context(|| format!("{} cannot be shared", folder.display()))?,
        None => memory(),
    };
    let share =
        Arc::new(Share { name: args.name.clone(), storage, writable: args.share.is_none() || args.allow_writes, users: users(args)? });
    let wire = args.keep.as_deref().map(keep).transpose()?;
    let config = Config { transport: args.transport.transport()?, wire, ..Config::for_soft_iwarp() };
    #[cfg(target_os = "linux")]
    if let Transport::Verbs(verbs) = config.transport {
        return cards(args, verbs, &share, &config);
    }
    let listener = TcpListener::bind(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut out = io::stdout();
    writeln!(out, "listening on {}, share {}", listener.local_addr()?, args.name)?;
    out.flush()?;
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        // a connection that was gone before it was accepted is its client's affair
        let Ok(stream) = stream else { continue };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (share, config, open, fault) = (share.clone(), config.clone(), open.clone(), args.fault);
        thread::spawn(move || {
            let client = stream.peer_addr().map_or_else(|_| "a client".to_owned(), |a| a.to_string());
            let served = match fault {
                Some(fault) => fault.serve(stream, share, &config),
                None => serve(stream, share, &config),
            };
            if let Err(e) = served {
                let _ = writeln!(io::stderr(), "rdmascope: {client}: {e}");
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// The same over RDMA cards.
#[cfg(target_os = "linux")]
fn cards(args: &Peer, verbs: rdmascope_verbs::Verbs, share: &Arc<Share>, config: &Config) -> Result<ExitCode> {
    if let Some(fault) = args.fault.filter(|fault| !fault.works_over_cards()) {
        bail!("--fault {}: a card does not let itself be made to do this; it is done over userspace iWARP only", fault.name);
    }
    let mut listener = rdmascope_verbs::Listener::bind(verbs, args.listen)?;
    let mut out = io::stdout();
    writeln!(out, "listening on {} over RDMA, share {}", listener.address(), args.name)?;
    out.flush()?;
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Some(request) = listener.next(std::time::Duration::from_secs(60))? else { continue };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            request.reject();
            continue;
        }
        let (share, config, open, fault) = (share.clone(), config.clone(), open.clone(), args.fault);
        thread::spawn(move || {
            let client = request.peer();
            let served = match fault {
                Some(fault) => fault.serve_card(request, share, &config),
                None => serve_card(request, share, &config),
            };
            if let Err(e) = served {
                let _ = writeln!(io::stderr(), "rdmascope: {client}: {e}");
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Those with a ticket, those who know the password of the environment, or everybody.
fn users(args: &Peer) -> Result<Users> {
    #[cfg(feature = "kerberos")]
    if let Some(path) = &args.keytab {
        return Ok(Users::Kerberos(rdmascope_replay::smb2::kerberos::keytab::Keytab::read(path)?));
    }
    #[cfg(not(feature = "kerberos"))]
    let _ = args;
    Ok(std::env::var("RDMASCOPE_PASSWORD").map_or(Users::Guests, |password| Users::Password(nt_hash(&password))))
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
