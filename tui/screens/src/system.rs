//! Signals, as far as the system has them: each item has a form for Unix and one for other systems.

use std::io;

/// The effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(unix), allow(dead_code))]
pub(crate) enum Signal {
    /// SIGTSTP: to be stopped.
    Suspend,
    /// SIGCONT: to go on.
    Continue,
    /// The others: to end, because of the signal of this number.
    End(u8),
}

/// True if a shell can stop the program and let it go on.
pub(crate) const SUSPENDS: bool = cfg!(unix);

/// Calls `heard` at each signal, on a thread of its own.
#[cfg(unix)]
pub(crate) fn on_signals(mut heard: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            heard(match signal {
                SIGTSTP => Signal::Suspend,
                SIGCONT => Signal::Continue,
                signal => Signal::End(signal as u8),
            });
        }
    });
    Ok(())
}

/// Keys come as keys, and a window that is closed ends the program.
#[cfg(not(unix))]
pub(crate) fn on_signals(_: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    Ok(())
}

/// Stops until the shell continues the program.
#[cfg(unix)]
pub(crate) fn suspend() -> io::Result<()> {
    signal_hook::low_level::raise(signal_hook::consts::SIGSTOP)
}

/// Nothing could let it go on.
#[cfg(not(unix))]
pub(crate) fn suspend() -> io::Result<()> {
    Ok(())
}
