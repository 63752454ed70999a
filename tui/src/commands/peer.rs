//! `rdmascope peer`: an SMB Direct server of our own over userspace iWARP, or a card.

use super::replay::keep;
use crate::cli::Peer;
use anyhow::{Context, Result, bail};
use rdmascope_analyzer::keys::ntlm::nt_hash;
use rdmascope_replay::channel::Config;
use rdmascope_replay::fault::FAULTS;
use rdmascope_replay::smb2::server::{Share, Users, serve};
use rdmascope_replay::smb2::storage::Storage;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Connections at the same time at most.
const CONNECTIONS_MAX: usize = 256;

pub(super) fn run(args: &Peer) -> Result<ExitCode> {
    if args.list_faults {
        let mut out = io::stdout().lock();
        for fault in FAULTS {
            let only = if fault.below { " (below SMB Direct: not over every transport)" } else { "" };
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
    let wire = args.keep.as_deref().map(|path| keep(path, &[], args.force)).transpose()?;
    let config = Config { wire, ..Config::patient(args.transport.open()?) };
    if let Some(fault) = args.fault.filter(|fault| !fault.works_over(config.transport.kind())) {
        bail!("--fault {}: --transport {} cannot be made to do this", fault.name, config.transport.kind().name);
    }
    let mut listener = config.transport.listen(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut out = io::stdout();
    writeln!(out, "listening on {}, share {}", listener.address(), args.name)?;
    out.flush()?;
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Some(request) = listener.next(Duration::from_secs(60))? else { continue };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (share, config, open, fault) = (share.clone(), config.clone(), open.clone(), args.fault);
        thread::spawn(move || {
            let client = request.peer().map_or_else(|| "a client".to_owned(), |a| a.to_string());
            let served = match fault {
                Some(fault) => fault.serve(request, share, &config),
                None => serve(request, share, &config),
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
