//! Terminal setup: raw mode, alternate screen, mouse and paste events. The former state is restored when the [`Screen`]
//! is dropped, and on a panic. This file depends on nothing else in the program, so that a test can include it alone
//! and panic on purpose.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};
use std::io::{Result, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// True while the terminal is set up. It is restored only once: restoring moves the cursor back to its first position,
/// and a second time would overwrite later output, such as the panic message.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn open() -> Result<Self> {
        let before = std::panic::take_hook();
        let main = std::thread::current().id();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
            // if the thread died, the screen would wait forever
            if std::thread::current().id() != main {
                std::process::exit(101);
            }
        }));
        if let Err(e) = enter() {
            leave();
            return Err(e);
        }
        Ok(Self { terminal: Terminal::new(CrosstermBackend::new(stdout()))? })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Takes the terminal, again.
pub(crate) fn enter() -> Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste, cursor::Hide)
}

/// Restores the terminal, if it was set up. Errors are ignored, since they cannot be reported.
pub(crate) fn leave() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}
