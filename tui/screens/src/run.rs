//! `rdmascope tui`: the terminal, the threads, and the loop between them. [`crate::app`] decides what is shown and what
//! keys do.
//!
//! ```text
//!  keys, mouse, signals ─┐                        ┌─▶ terminal
//!  loader ── news ───────┼─▶ update(App) ─ draw ──┤
//!  looker ── lines, tree ┤        └── effects ────┴─▶ looker, worker, clipboard
//!  worker ── found, done ┘
//! ```

use crate::app::{App, Effect, Msg, Output, Reopen, Write, update};
use crate::cache::Cache;
use crate::config::{Config, Keep, Memory};
use crate::keys::Keys;
use crate::loader::{self, Shared};
use crate::redissect::{self, NotWritten, Redissector, Which};
use crate::search::Needle;
use crate::sort::{self, By};
use crate::system::{self, Signal};
use crate::terminal::{Screen, enter, leave};
use crate::theme::{self, Depth, Theme};
use crate::{content, order, view};
use anyhow::{Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;
use rdmascope_analyzer::env::Options;
use rdmascope_capture::Existing;
use rdmascope_capture::live::LiveSource;
use rdmascope_dissector::field::Def;
use rdmascope_dissector::filter::Filter;
use rdmascope_report::fields;
use rdmascope_report::report::Ignore;
use rdmascope_report::report::words::grouped;
use rdmascope_report::stdout::Color;
use std::io::{IsTerminal, Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum number of bytes for a terminal's clipboard.
const COPY_MAX: usize = 100_000;
/// Time for which messages are collected before the screen is drawn.
const GATHER: Duration = Duration::from_millis(6);

/// The capture to show, and the initial settings.
pub struct Setup {
    /// Source of the frames.
    pub from: From,
    /// Display filter to begin with.
    pub filter: Option<String>,
    /// When to color the screen.
    pub color: Color,
    /// Options of the analysis.
    pub options: Options,
    /// Findings to leave out, besides those of the configuration.
    pub ignore: Vec<Ignore>,
    /// True if indexes of captures are kept on disk, and used.
    pub keep_index: bool,
}

/// Source of the frames.
pub enum From {
    /// Captures, merged by time if there are several.
    Files {
        /// Their paths; `-` is standard input.
        paths: Vec<PathBuf>,
        /// True if reading continues while the file grows.
        follow: bool,
    },
    /// Interfaces.
    Live {
        /// Their names.
        interfaces: Vec<String>,
        /// Path at which the kernel lists RDMA devices.
        rdma_root: PathBuf,
        /// Opens them, after everything else that can fail; there must be no other thread yet. The flag ends the
        /// capture.
        open: Box<dyn FnOnce(Arc<AtomicBool>) -> Result<LiveSource>>,
    },
}

/// Shows it until the user quits. Returns the exit status.
///
/// # Errors
/// A filter or configuration that is wrong, a capture that cannot be opened, a terminal that is none.
pub fn run(setup: Setup) -> Result<ExitCode> {
    let registry = fields::registry();
    fields::filter(setup.filter.as_deref(), &registry)?;
    let config = Config::load()?;
    let memory = Memory::of_user();
    let keys = Keys::new(&config.keys).map_err(|e| anyhow::anyhow!("configuration: keys: {e}"))?;
    let columns: Vec<Def> = match config.columns.is_empty() {
        // those chosen last; a field that there is no more is no error
        true => memory.columns().iter().filter_map(|name| registry.find(name)).collect(),
        false => config.columns.iter().map(|name| fields::field(name, &registry)).collect::<Result<_>>()?,
    };
    if !stdout().is_terminal() {
        bail!("the terminal UI needs a terminal to write to; rdmascope dissect and analyze write anywhere");
    }
    let plain = setup.color == Color::Never
        || setup.color == Color::Auto && std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let theme = if plain {
        theme::Name::Mono
    } else {
        config.theme.or_else(|| memory.theme()).unwrap_or_else(theme::Name::of_environment)
    };
    let theme = Theme::new(theme, Depth::of_environment());
    let (tx, mut rx) = channel();
    let to: To = Arc::new(Mutex::new(tx));
    let code = Arc::new(AtomicU8::new(0));
    let cache = if setup.keep_index { Cache::of_user().map(Arc::new) } else { None };
    let mut ignore = setup.ignore;
    ignore.extend(config.ignore.iter().filter(|of_file| !ignore.contains(of_file)).copied().collect::<Vec<_>>());
    let ignore = Arc::new(ignore);
    let mut opened = open(setup.from, setup.options, ignore, cache)?;
    // the screen of the capture before this one: its choices stay
    let mut before: Option<App> = None;
    let mut screen: Option<Screen> = None;
    loop {
        let Opened { input, name, paths, follow, grows, is_live, shared } = opened;
        let mut app = App::new(name, keys.clone(), theme.name);
        (app.model.theme, app.model.time, app.model.columns) = (theme, config.time, columns.clone());
        (app.model.history, app.model.recent) = (memory.filters(), memory.recent());
        if let ([path], false, false) = (&paths[..], grows, is_live) {
            (app.model.marks, app.path) = (memory.marks(path), Some(path.clone()));
            memory.keep(&Keep::Opened(path.clone()));
        }
        (app.model.grows, app.model.is_live, app.model.tailing) = (grows, is_live, grows);
        let mut filter = setup.filter.clone();
        if let Some(before) = before.take() {
            (app.model.theme, app.model.time, app.model.columns, app.model.size, app.model.view) =
                (before.model.theme, before.model.time, before.model.columns, before.model.size, before.model.view);
            filter = Some(before.model.filter.text).filter(|text| !text.is_empty());
        }
        let effects = filter.as_deref().map_or_else(Vec::new, |text| app.filter_by(text));
        let tx = lock(&to).clone();
        if screen.is_none() {
            signals(to.clone(), code.clone())?;
            screen = Some(Screen::open()?);
            if let Ok(size) = ratatui::crossterm::terminal::size() {
                app.model.size = size;
            }
            start_input(to.clone());
        }
        let Some(screen) = &mut screen else { break };
        start_loader(input, app.model.grows, follow, shared.clone(), tx.clone());
        let looker = start_looker(shared.clone(), tx.clone());
        let sorter = start_sorter(shared.clone(), tx.clone());
        let worker = start_worker(shared.clone(), tx.clone());
        let mut running =
            Running { app, screen, looker, sorter, worker, shared: shared.clone(), paths, next: None, tx };
        let ended = running.run(&rx, effects);
        shared.stop.store(true, Ordering::Relaxed);
        ended?;
        let Some(next) = running.next.take() else { break };
        opened = next;
        before = Some(running.app);
        // messages of the former capture's threads are discarded
        let (tx, newer) = channel();
        *lock(&to) = tx;
        rx = newer;
    }
    drop(screen);
    Ok(ExitCode::from(code.load(Ordering::Relaxed)))
}

/// Receiver of keys and signals: the screen that is shown now.
type To = Arc<Mutex<Sender<Msg>>>;

fn lock(to: &To) -> std::sync::MutexGuard<'_, Sender<Msg>> {
    to.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An opened input. Errors on opening are reported before the screen changes.
struct Opened {
    input: loader::Input,
    name: String,
    paths: Vec<PathBuf>,
    follow: bool,
    grows: bool,
    is_live: bool,
    shared: Shared,
}

fn open(from: From, options: Options, ignore: Arc<Vec<Ignore>>, cache: Option<Arc<Cache>>) -> Result<Opened> {
    let shared = Shared { ignore, cache, ..Shared::with(options) };
    Ok(match from {
        From::Live { interfaces, rdma_root, open } => {
            let source = open(shared.stop.clone())?;
            let input = loader::Input::Live(Box::new(loader::LiveInput::new(source, rdma_root)));
            Opened {
                input,
                name: interfaces.join(", "),
                paths: Vec::new(),
                follow: true,
                grows: true,
                is_live: true,
                shared,
            }
        }
        From::Files { paths, follow } => {
            let grows = follow || paths.iter().any(|f| f.as_os_str() == "-");
            shared.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone_from(&paths);
            let input = loader::open_all(&paths, follow, &shared.stop)?;
            Opened { input, name: title(&paths), paths, follow, grows, is_live: false, shared }
        }
    })
}

fn title(files: &[PathBuf]) -> String {
    let name =
        |p: &PathBuf| p.file_name().map_or_else(|| p.display().to_string(), |n| n.to_string_lossy().into_owned());
    match files {
        [one] if one.as_os_str() == "-" => "standard input".to_owned(),
        [one] => name(one),
        [first, rest @ ..] => format!("{} and {} more", name(first), rest.len()),
        [] => String::new(),
    }
}

fn signals(to: To, code: Arc<AtomicU8>) -> Result<()> {
    system::on_signals(move |signal| {
        let msg = match signal {
            Signal::Suspend => Msg::Suspend,
            Signal::Continue => Msg::Redraw,
            Signal::End(number) => {
                code.store(128 + number, Ordering::Relaxed);
                Msg::Quit
            }
        };
        let quit = matches!(msg, Msg::Quit);
        let _ = lock(&to).send(msg);
        if quit {
            // in case the loop does not end because the terminal hangs
            std::thread::sleep(Duration::from_secs(2));
            leave();
            std::process::exit(code.load(Ordering::Relaxed).into());
        }
    })?;
    Ok(())
}

/// A text for the terminal's clipboard: OSC 52.
fn copy(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    write!(out, "\x1b]52;c;{}\x07", BASE64_STANDARD.encode(&text.as_bytes()[..text.len().min(COPY_MAX)]))?;
    out.flush()
}

// ── The threads
// ─────────────────────────────────────────────────────────────────────────────────────────────────────────

fn start_loader(input: loader::Input, live: bool, follow: bool, shared: Shared, tx: Sender<Msg>) {
    std::thread::spawn(move || {
        loader::run(input, live, follow, &shared, |news| tx.send(Msg::News(Box::new(news))).is_ok())
    });
}

fn start_input(to: To) {
    std::thread::spawn(move || {
        loop {
            let msg = match event::read() {
                Ok(Event::Key(key)) => Msg::Key(key),
                Ok(Event::Mouse(mouse)) => Msg::Mouse(mouse),
                Ok(Event::Paste(text)) => Msg::Paste(text),
                Ok(Event::Resize(width, height)) => Msg::Resize(width, height),
                Ok(_) => continue,
                // the terminal has gone
                Err(_) => Msg::Quit,
            };
            let quit = matches!(msg, Msg::Quit);
            if lock(&to).send(msg).is_err() || quit {
                return;
            }
        }
    });
}

/// A thread that sorts I/O and memory, for at most a fifth of the time: the capture is read at the same time.
fn start_sorter(shared: Shared, tx: Sender<Msg>) -> Sender<Effect> {
    let (ask, asked) = channel();
    std::thread::spawn(move || {
        while let Ok(Effect::Order { table, rows, generation, by, followed, passing, version }) = asked.recv() {
            let begun = Instant::now();
            let exchanges = shared.exchanges();
            let rows = order::make(rows, &exchanges, by, followed.as_deref(), passing.as_deref());
            if tx.send(Msg::Ordered { table, generation, version, rows }).is_err() {
                return;
            }
            if !shared.finished.load(Ordering::Acquire) {
                std::thread::sleep(begun.elapsed() * 4);
            }
        }
    });
    ask
}

/// Makes lines and trees for the screen. Only the last of several requests counts; earlier ones are discarded.
fn start_looker(shared: Shared, tx: Sender<Msg>) -> Sender<Effect> {
    let (ask, asked) = channel();
    std::thread::spawn(move || {
        let mut lines = Redissector::new(shared.clone());
        let mut trees = Redissector::new(shared);
        while let Ok(effect) = asked.recv() {
            let (mut wanted_lines, mut wanted_tree) = (None, None);
            let mut next = Some(effect);
            while let Some(effect) = next {
                match effect {
                    Effect::Texts { generation, frames, columns } => wanted_lines = Some((generation, frames, columns)),
                    Effect::Detail(place) => wanted_tree = Some(place),
                    _ => {}
                }
                next = asked.try_recv().ok();
            }
            if let Some((generation, frames, columns)) = wanted_lines {
                let texts = lines.texts(&frames, &columns);
                if tx.send(Msg::Texts(generation, texts)).is_err() {
                    return;
                }
            }
            if let Some(place) = wanted_tree
                && tx.send(Msg::Detail(Box::new(trees.detail(place)))).is_err()
            {
                return;
            }
        }
    });
    ask
}

/// Runs long tasks, one after another. A filter has a thread of its own, since it may wait for a growing capture, and
/// so has sorting; a new one ends it.
struct Worker {
    ask: Sender<(u64, Effect)>,
    /// Of the filter, of the sorting.
    filter: Arc<AtomicU64>,
    sorting: Arc<AtomicU64>,
    /// Number of the current request; work for another number is cancelled.
    wanted: Arc<AtomicU64>,
}

/// Between two words on how far a work is.
const TELL_EVERY: Duration = Duration::from_millis(100);

fn start_worker(shared: Shared, tx: Sender<Msg>) -> Worker {
    let (ask, asked) = channel();
    let worker = Worker { ask, filter: Arc::default(), sorting: Arc::default(), wanted: Arc::default() };
    let (filter_wanted, sorting_wanted, wanted) =
        (worker.filter.clone(), worker.sorting.clone(), worker.wanted.clone());
    std::thread::spawn(move || {
        while let Ok((number, effect)) = asked.recv() {
            let mut redissector = Redissector::new(shared.clone());
            let mut reported = Instant::now();
            let mut progress = |what: &'static str, done: usize, all: usize| {
                if reported.elapsed() > TELL_EVERY {
                    reported = Instant::now();
                    if tx.send(Msg::Working(what, done, all)).is_err() {
                        return false;
                    }
                }
                wanted.load(Ordering::Relaxed) == number
            };
            let msg = match effect {
                Effect::Filter { text, .. } if text.is_empty() => continue,
                Effect::Filter { generation, text } => {
                    let (current, tx) = (filter_wanted.clone(), tx.clone());
                    std::thread::spawn(move || filter(&mut redissector, generation, &text, &current, &tx));
                    continue;
                }
                Effect::Sort { generation, by, frames } => {
                    let (current, tx) = (sorting_wanted.clone(), tx.clone());
                    std::thread::spawn(move || sort(&mut redissector, generation, by, &frames, &current, &tx));
                    continue;
                }
                Effect::Find { text, frames, forward } => {
                    match find(&mut redissector, &text, &frames, forward, &mut |done, all| {
                        progress("searching", done, all)
                    }) {
                        Ok(hit) => Msg::Hit(hit),
                        Err(e) => Msg::Done(Err(format!("searching: {e}"))),
                    }
                }
                Effect::Content { ids, title, client } => {
                    let mut said = |done, all| progress("reading", done, all);
                    match content::content(&mut redissector, &ids, &client, content::BYTES_MAX, &mut said) {
                        Ok(lines) => Msg::Content(title, lines),
                        Err(e) => Msg::Done(Err(format!("content: {e}"))),
                    }
                }
                Effect::Write(write) => carry_out(&mut redissector, write, &shared, &mut progress),
                Effect::Keep(what) => {
                    Memory::of_user().keep(&what);
                    continue;
                }
                _ => continue,
            };
            if tx.send(msg).is_err() {
                return;
            }
        }
    });
    worker
}

/// Searches from a row to the end, and then from the other end to that row. Returns the place of the frame, and whether
/// the search wrapped around.
pub(crate) fn find(
    redissector: &mut Redissector,
    text: &str,
    frames: &[Which; 2],
    forward: bool,
    progress: &mut dyn FnMut(usize, usize) -> bool,
) -> Result<Option<(u32, bool)>, String> {
    let mut needle = Needle::parse(text, &fields::registry())?;
    let all = frames[0].len() + frames[1].len();
    let hit = redissector.find(&mut needle, &frames[0], forward, &mut |done| progress(done, all))?;
    if let Some(place) = hit {
        return Ok(Some((place, false)));
    }
    let hit = redissector.find(&mut needle, &frames[1], forward, &mut |done| progress(frames[0].len() + done, all))?;
    Ok(hit.map(|place| (place, true)))
}

/// Writes a file. Returns the result as text, or that the user has to confirm replacing an existing file.
pub(crate) fn carry_out(
    redissector: &mut Redissector,
    write: Write,
    shared: &Shared,
    progress: &mut dyn FnMut(&'static str, usize, usize) -> bool,
) -> Msg {
    let existing = if write.replace { Existing::Replace } else { Existing::Keep };
    let path = &write.path;
    let name = path.display();
    let several = |n: u64, what: &str| format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" });
    let written = match &write.what {
        Output::Frames(frames) => {
            let saved = redissector.save(path, frames, existing, &mut |done| progress("saving", done, frames.len()));
            saved.map(|saved| match saved.gone {
                0 => format!("{} saved to {name}", several(saved.frames, "frame")),
                gone => {
                    format!("{} saved to {name}; {} were no longer kept", several(saved.frames, "frame"), grouped(gone))
                }
            })
        }
        Output::Lines(frames, columns) => {
            let rows = redissector
                .export(path, frames, columns, existing, &mut |done| progress("exporting", done, frames.len()));
            rows.map(|n| format!("{} exported to {name}", several(n, "row")))
        }
        Output::Table(rows) => {
            let rows = redissect::export_table(path, rows, &shared.files(), existing);
            rows.map(|n| format!("{} exported to {name}", several(n, "row")))
        }
    };
    match written {
        Ok(text) => Msg::Done(Ok(text)),
        Err(NotWritten::Exists) => Msg::Exists(Box::new(write)),
        Err(NotWritten::Because(e)) if e == redissect::GIVEN_UP => Msg::Done(Err(format!("{name}: {e}"))),
        Err(NotWritten::Because(e)) => Msg::Done(Err(e)),
    }
}

fn sort(redissector: &mut Redissector, generation: u64, by: By, frames: &Which, current: &AtomicU64, tx: &Sender<Msg>) {
    let mut reported = Instant::now();
    let sorted = sort::sort(redissector, by, frames, &mut |looked| {
        if reported.elapsed() > TELL_EVERY {
            reported = Instant::now();
            let _ = tx.send(Msg::Sorting { generation, looked });
        }
        current.load(Ordering::Relaxed) == generation
    });
    if let Some(sorted) = sorted {
        let _ = tx.send(Msg::Sorted { generation, sorted });
    }
}

fn filter(redissector: &mut Redissector, generation: u64, text: &str, current: &AtomicU64, tx: &Sender<Msg>) {
    let Ok(mut filter) = Filter::parse(text, &fields::registry()) else { return };
    let wanted = || current.load(Ordering::Relaxed) == generation;
    let mut reported = Instant::now();
    let mut gathered = Vec::new();
    let mut looked_last = 0;
    redissector.filter(
        &mut filter,
        &mut |frames, looked| {
            gathered.extend(frames);
            looked_last = looked;
            if reported.elapsed() > Duration::from_millis(40) {
                reported = Instant::now();
                let frames = std::mem::take(&mut gathered);
                return tx.send(Msg::Found { generation, frames, looked, done: false }).is_ok() && wanted();
            }
            wanted()
        },
        &mut || {
            // the loader will deliver more
            std::thread::sleep(Duration::from_millis(40));
            wanted()
        },
    );
    let _ = tx.send(Msg::Found { generation, frames: gathered, looked: looked_last, done: true });
}

// ── The loop
// ────────────────────────────────────────────────────────────────────────────────────────────────────────────

struct Running<'s> {
    app: App,
    screen: &'s mut Screen,
    looker: Sender<Effect>,
    sorter: Sender<Effect>,
    worker: Worker,
    shared: Shared,
    paths: Vec<PathBuf>,
    /// The capture to show next; `None` ends the program.
    next: Option<Opened>,
    tx: Sender<Msg>,
}

impl Running<'_> {
    fn run(&mut self, rx: &Receiver<Msg>, effects: Vec<Effect>) -> Result<()> {
        if self.carry_out(effects)? {
            return Ok(());
        }
        loop {
            let app = &self.app;
            self.screen.terminal.draw(|frame| view::draw(app, frame.buffer_mut()))?;
            let Ok(mut msg) = rx.recv() else { return Ok(()) };
            let begun = Instant::now();
            loop {
                let effects = update(&mut self.app, msg);
                if self.carry_out(effects)? {
                    return Ok(());
                }
                match rx.try_recv() {
                    Ok(next) if begun.elapsed() < GATHER => msg = next,
                    Ok(next) => {
                        let effects = update(&mut self.app, next);
                        if self.carry_out(effects)? {
                            return Ok(());
                        }
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
    }

    /// Carries out effects. Returns true if one of them was to quit.
    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<bool> {
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(true),
                Effect::Suspend if system::SUSPENDS => {
                    leave();
                    system::suspend()?;
                    enter()?;
                    self.redraw()?;
                }
                Effect::Suspend => {}
                Effect::Redraw => self.redraw()?,
                Effect::Continue => drop(self.tx.send(Msg::Continue)),
                Effect::Copy(text) => copy(&text)?,
                Effect::Texts { .. } | Effect::Detail(_) => drop(self.looker.send(effect)),
                Effect::Order { .. } => drop(self.sorter.send(effect)),
                Effect::Reopen(reopen) => match self.reopened(&reopen) {
                    Ok(next) => {
                        self.next = Some(next);
                        return Ok(true);
                    }
                    Err(e) => drop(self.tx.send(Msg::Done(Err(format!("{e:#}"))))),
                },
                Effect::Pause(paused) => self.shared.paused.store(paused, Ordering::Relaxed),
                Effect::Restart => drop(self.shared.restarts.fetch_add(1, Ordering::Relaxed)),
                Effect::ReadUpTo(frames) => self.shared.frames_max.store(frames, Ordering::Relaxed),
                Effect::EndSort(generation) => self.worker.sorting.store(generation, Ordering::Relaxed),
                Effect::GiveUp => drop(self.worker.wanted.fetch_add(1, Ordering::Relaxed)),
                _ => {
                    match &effect {
                        Effect::Filter { generation, .. } => self.worker.filter.store(*generation, Ordering::Relaxed),
                        Effect::Sort { generation, .. } => self.worker.sorting.store(*generation, Ordering::Relaxed),
                        _ => {}
                    }
                    let number = self.worker.wanted.load(Ordering::Relaxed);
                    drop(self.worker.ask.send((number, effect)));
                }
            }
        }
        Ok(false)
    }

    /// Opens the capture to show next.
    fn reopened(&self, reopen: &Reopen) -> Result<Opened> {
        let options = Options::clone(&self.shared.options);
        match reopen {
            Reopen::Capture(path) => open(
                From::Files { paths: vec![path.clone()], follow: false },
                options,
                self.shared.ignore.clone(),
                self.shared.cache.clone(),
            ),
            Reopen::WithKeys(_) if self.paths.iter().any(|p| p.as_os_str() == "-") => {
                bail!("standard input cannot be read twice: give --keys at the start")
            }
            Reopen::WithKeys(path) => {
                let keyring = rdmascope_report::input::keyring(Some(path))?;
                open(
                    From::Files { paths: self.paths.clone(), follow: false },
                    Options { keyring, ..options },
                    self.shared.ignore.clone(),
                    self.shared.cache.clone(),
                )
            }
        }
    }

    fn redraw(&mut self) -> Result<()> {
        let (width, height) = ratatui::crossterm::terminal::size()?;
        // this also clears; unlike `clear` it does not ask the terminal for the cursor, since the answer would go to
        // the thread that reads keys
        self.screen.terminal.resize(Rect::new(0, 0, width, height))?;
        // the size may have changed unnoticed
        let _ = self.tx.send(Msg::Resize(width, height));
        Ok(())
    }
}
