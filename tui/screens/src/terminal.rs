//! The terminal while it is ours: raw, on its other screen, with mouse and pastes. What it was comes back when the [`Screen`] goes, and
//! when anything panics meanwhile. Nothing here knows the rest of the program: a test that panics on purpose takes this file as it is.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{cursor, execute};
use std::io::{Result, Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is ours. It is left once: leaving puts the cursor back where it was at first, and a second time that would be over
/// what was written since, such as why the program panicked.
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
            // a thread that is gone leaves a screen that waits forever
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

/// Gives the terminal back, where it is taken. Whatever of it fails: there is nobody left to tell.
pub(crate) fn leave() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}
