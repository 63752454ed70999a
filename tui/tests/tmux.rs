//! The terminal UI in a real terminal: tmux is one that a program can type into and read. Without tmux the test says so
//! and does nothing, unless `CI` is set: then it fails.

#[path = "../screens/src/terminal.rs"]
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Time limit for a screen to show something; machines that build are slow.
const PATIENCE: Duration = Duration::from_secs(120);

struct Terminal {
    socket: String,
    dir: PathBuf,
}

impl Terminal {
    /// A shell in a terminal; `None` without tmux.
    fn open(name: &str, width: u16, height: u16) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "tmux is missing: the terminal UI was NOT tried in a terminal");
            eprintln!("\n*** tmux is missing: the terminal UI was NOT tried in a terminal ***\n");
            return None;
        }
        let socket = format!("rdmascope-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(&socket);
        std::fs::create_dir_all(&dir).unwrap();
        let terminal = Self { socket, dir };
        let (width, height) = (width.to_string(), height.to_string());
        let out = terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "env PS1='ready> ' TERM=xterm-256color sh",
        ]);
        assert!(out.status.success(), "{out:?}");
        terminal.wait("ready>");
        terminal.types(&format!("cd '{}'; export XDG_CONFIG_HOME=$PWD XDG_STATE_HOME=$PWD", terminal.dir.display()));
        terminal.press(&["Enter"]);
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        Command::new("tmux").args(["-L", &self.socket]).args(arguments).output().unwrap()
    }

    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn press(&self, keys: &[&str]) {
        for key in keys {
            self.tmux(&["send-keys", key]);
        }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// Waits until the screen has a text.
    fn wait(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }

    fn wait_for(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if done(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The modes that a program in the alternate screen sets.
    fn alternate(&self) -> bool {
        String::from_utf8_lossy(&self.tmux(&["display-message", "-p", "#{alternate_on}#{mouse_any_flag}"]).stdout)
            .trim()
            != "00"
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples").join(name).join(format!("{name}.pcap"));
    path.canonicalize().unwrap().display().to_string()
}

fn start(name: &str) -> String {
    format!("'{}' tui '{}'", env!("CARGO_BIN_EXE_rdmascope"), sample(name))
}

#[test]
fn from_start_to_quit() {
    let Some(t) = Terminal::open("whole", 120, 36) else { return };
    // why the mount failed is on the first screen
    t.types(&start("smb-roce-negotiate-refused"));
    t.press(&["Enter"]);
    let screen = t.wait("cause");
    assert!(screen.contains("MaxFragmentedSize 130,560"), "{screen}");
    // from a finding to its frame, and back
    t.types("7");
    t.wait("Enter goes there");
    t.press(&["Enter"]);
    t.wait("NegotiateResponse");
    t.press(&["Escape"]);
    t.wait("Enter goes there");
    t.types("q");
    t.wait("ready>");

    // a sealed session is read with its keys
    let sealed = sample("smb-tcp-seal");
    let keys = sealed.replace("smb-tcp-seal.pcap", "keys.txt");
    t.types(&format!("clear; '{}' tui --keys '{keys}' '{sealed}'", env!("CARGO_BIN_EXE_rdmascope")));
    t.press(&["Enter"]);
    t.wait("? help");
    t.types("3");
    t.wait("CREATE");
    t.types("q");
    t.wait("ready>");

    t.types(&format!("clear; {}", start("smb-roce")));
    t.press(&["Enter"]);
    t.wait("1,079 frames");
    // a filter, with completion
    t.types("/smb2.cmd == ");
    t.wait("filter: smb2.cmd ==");
    t.types("8");
    t.press(&["Enter"]);
    t.wait("12 of 1,079 frames");
    // the frames that the filter passes are saved
    t.types("w");
    t.wait("save frames to: smb-roce-frames.pcapng");
    t.press(&["Enter"]);
    t.wait("12 frames saved to smb-roce-frames.pcapng");
    assert!(t.dir.join("smb-roce-frames.pcapng").metadata().unwrap().len() > 1000);
    // the credit plot, nearer and back
    t.types("F4");
    let all = t.wait("next stall");
    t.types("++");
    t.wait_for("a part of the plot", |screen| screen.contains("next stall") && *screen != *all);
    t.types("0");
    t.wait_for("all of the plot", |screen| *screen == *all);
    // another size
    t.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    t.wait_for("a smaller screen", |screen| {
        screen.contains("next stall") && screen.lines().all(|l| l.chars().count() <= 80)
    });
    t.types("q");
    t.wait("ready>");
    assert!(!t.alternate());
}

#[test]
fn the_terminal_is_given_back() {
    let Some(t) = Terminal::open("back", 100, 30) else { return };
    t.types(&start("smb-roce"));
    t.press(&["Enter"]);
    t.wait("1,079 frames");
    assert!(t.alternate());
    // suspended and taken up again
    t.press(&["C-z"]);
    t.wait_for("the shell's word", |screen| screen.to_lowercase().contains("stopped"));
    assert!(!t.alternate());
    t.types("fg");
    t.press(&["Enter"]);
    t.wait("1,079 frames");
    // ended from outside
    let pane = String::from_utf8_lossy(&t.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout).trim().to_owned();
    let children = std::fs::read_to_string(format!("/proc/{pane}/task/{pane}/children")).unwrap();
    let child = children.split_whitespace().next().unwrap().to_owned();
    assert!(Command::new("kill").args(["-TERM", &child]).status().unwrap().success());
    t.wait_for("the shell", |_| !t.alternate());
    t.types("echo \"it ended with $?\"");
    t.press(&["Enter"]);
    t.wait("it ended with 143");
    // the shell still echoes input
    t.types("echo still here");
    t.wait("echo still here");
}

/// Environment variable that says where the program below panics.
const PANIC: &str = "TMUX_TEST_PANIC";

/// The program that the next test runs in a terminal: it panics while the terminal is taken. By itself it does nothing.
#[test]
fn on_purpose() {
    let Some(place) = std::env::var_os(PANIC) else { return };
    let mut screen = terminal::Screen::open().unwrap();
    screen.terminal.draw(|frame| frame.render_widget("TAKEN", frame.area())).unwrap();
    // the test has seen it, and sends a key
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]).unwrap();
    if place == "thread" {
        let _ = std::thread::spawn(|| panic!("on purpose, in a thread")).join();
    } else if place == "suspended" {
        terminal::leave();
        terminal::enter().unwrap();
    }
    panic!("on purpose, in the loop");
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let Some(t) = Terminal::open("panic", 100, 30) else { return };
    let tty = |t: &Terminal| {
        t.types("clear; stty -a | grep -o -w -e -*icanon -e -*echo -e -*isig -e -*opost | xargs echo tty:; echo done.");
        t.press(&["Enter"]);
        t.wait_for("stty", |screen| screen.lines().any(|line| line == "done."))
    };
    let before = tty(&t);
    assert!(
        before.contains("icanon") && !before.lines().any(|line| line.starts_with("tty:") && line.contains("-icanon")),
        "{before}"
    );
    for (place, said) in [
        ("loop", "on purpose, in the loop"),
        ("thread", "on purpose, in a thread"),
        ("suspended", "on purpose, in the loop"),
    ] {
        let program = std::env::current_exe().unwrap();
        t.types(&format!(
            "clear; {PANIC}={place} '{}' --exact on_purpose --nocapture; echo \"it ended with $?\"",
            program.display()
        ));
        t.press(&["Enter"]);
        t.wait("TAKEN");
        assert!(t.alternate());
        t.types("x");
        let screen = t.wait("it ended with 101");
        // the panic message is on the shell's screen and stays there
        assert!(screen.contains(said), "{place}: {screen}");
        assert!(!t.alternate(), "{place}");
        let cursor = t.tmux(&["display-message", "-p", "#{cursor_flag}"]).stdout;
        assert_eq!(String::from_utf8_lossy(&cursor).trim(), "1", "{place}");
        assert_eq!(tty(&t), before, "{place}");
    }
}

#[test]
fn a_pipe_is_shown_while_it_comes() {
    let Some(t) = Terminal::open("pipe", 100, 30) else { return };
    t.types(&format!("(cat '{}'; sleep 60) | '{}' tui -", sample("smb-roce"), env!("CARGO_BIN_EXE_rdmascope")));
    t.press(&["Enter"]);
    t.wait("standard input");
    t.wait("SMB Direct RoCEv2");
    // keys come from the terminal all the same
    t.types("2");
    t.wait("Destination");
    t.types("q");
    t.wait_for("the end", |screen| !screen.contains("Destination"));
}

#[test]
fn a_file_that_grows_is_followed() {
    let Some(t) = Terminal::open("grows", 100, 30) else { return };
    let bytes = std::fs::read(sample("smb-roce")).unwrap();
    let path = t.dir.join("grows.pcap");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    t.types(&format!("'{}' tui -F grows.pcap", env!("CARGO_BIN_EXE_rdmascope")));
    t.press(&["Enter"]);
    t.wait("live");
    t.wait_for("the first half", |screen| screen.contains(" frames") && !screen.contains(" 0 frames"));
    use std::io::Write;
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes[bytes.len() / 2..]).unwrap();
    t.wait("1,079 frames");
    t.types("q");
    t.wait("ready>");
}

#[test]
fn frames_are_sorted_and_a_connection_is_followed() {
    let Some(t) = Terminal::open("sorted", 100, 30) else { return };
    t.types(&start("smb-roce"));
    t.press(&["Enter"]);
    t.wait("1,079 frames");
    t.types("2");
    t.wait("Destination");
    // by source, by info, and in reverse
    t.types("oo");
    t.wait("sorted by Source");
    t.types("oooo");
    t.wait("Info▴");
    t.types("O");
    t.wait("Info▾");
    t.types("oO");
    t.wait_for("the last frame first", |screen| {
        screen.contains("No.▾") && screen.lines().nth(3).is_some_and(|l| l.contains(" 1079 "))
    });
    t.types("O");
    t.wait_for("the order of the capture", |screen| !screen.contains("sorted by"));
    // a click on a heading, as terminals report it
    t.types("\x1b[<0;5;3M");
    t.wait("No.▾");
    t.types("O");
    // the handshake belongs to the connection
    t.types("1f2");
    t.wait("connection 1 alone");
    t.press(&["Home"]);
    t.wait("CM ConnectReq");
    t.types("q");
    t.wait("ready>");
}

#[test]
fn what_is_copied_and_exported_arrives() {
    let Some(t) = Terminal::open("taken", 120, 30) else { return };
    t.tmux(&["set-option", "-s", "set-clipboard", "on"]);
    t.types(&start("smb-roce"));
    t.press(&["Enter"]);
    t.wait("1,079 frames");
    t.types("2");
    t.wait("Destination");
    t.types("g24");
    t.press(&["Enter"]);
    t.wait("─ frame 24 ─");
    for (key, part) in [("r", "NegotiateRequest"), ("f", "smb_direct"), ("b", "00010001")] {
        t.types(&format!("y{key}"));
        let begun = Instant::now();
        loop {
            let buffer = String::from_utf8_lossy(&t.tmux(&["show-buffer"]).stdout).into_owned();
            if buffer.contains(part) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{key}: {buffer:?}\n{}", t.screen());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    for (view, name, head) in [
        ("3", "smb-roce-io.csv", "exchange,connection,"),
        ("7", "smb-roce-findings.csv", "id,severity,"),
        ("2", "smb-roce-frames.csv", "frame,time,"),
    ] {
        t.types(view);
        t.types("x");
        t.wait(&format!("export to: {name}"));
        t.press(&["Enter"]);
        t.wait(&format!("exported to {name}"));
        let text = std::fs::read_to_string(t.dir.join(name)).unwrap();
        assert!(text.starts_with(head) && text.lines().count() > 3, "{text:.200}");
    }
    t.types("q");
    t.wait("ready>");
}

#[test]
fn colours_and_keys_are_the_users() {
    let Some(t) = Terminal::open("own", 60, 18) else { return };
    let colours = || {
        let screen = String::from_utf8_lossy(&t.tmux(&["capture-pane", "-p", "-e"]).stdout).into_owned();
        screen
            .split("\x1b[")
            .skip(1)
            .filter_map(|s| s.split_once('m'))
            .flat_map(|(codes, _)| codes.split(';').map(str::to_owned).collect::<Vec<_>>())
            .filter(|code| code.parse::<u8>().is_ok_and(|code| matches!(code, 30..=38 | 40..=48 | 90..=107)))
            .count()
    };
    // sixteen colours are enough, and so is none
    t.types(&format!("TERM=xterm-16color {}", start("smb-roce-negotiate-refused")));
    t.press(&["Enter"]);
    t.wait("MaxFragmentedSize");
    assert!(colours() > 0);
    t.types("q");
    t.wait("ready>");
    t.types(&format!("clear; NO_COLOR=1 {}", start("smb-roce-negotiate-refused")));
    t.press(&["Enter"]);
    t.wait("MaxFragmentedSize");
    for view in ["2", "3", "4", "5", "6", "7", "8", "1"] {
        t.types(view);
        t.wait_for("a view", |screen| !screen.contains("ready>"));
        assert_eq!(colours(), 0, "{}", t.screen());
    }
    t.types("q");
    t.wait("ready>");
    // the user's own configuration; errors in it are reported before the screen changes
    std::fs::create_dir_all(t.dir.join("rdmascope")).unwrap();
    std::fs::write(
        t.dir.join("rdmascope/config.toml"),
        "theme = \"light\"\ntime = \"clock\"\n[keys]\nquit = [\"Q\"]\n",
    )
    .unwrap();
    t.types(&format!("clear; {}", start("smb-roce")));
    t.press(&["Enter"]);
    t.wait("Q quit");
    t.types("q2");
    t.wait("go to");
    t.types("Q");
    t.wait("ready>");
    std::fs::write(t.dir.join("rdmascope/config.toml"), "theme = \"dark\"\ncolour = 1\n").unwrap();
    t.types(&format!("clear; {}", start("smb-roce")));
    t.press(&["Enter"]);
    t.wait("unknown field");
}

#[test]
fn keys_and_other_captures_are_given_from_inside() {
    let Some(t) = Terminal::open("keys", 120, 30) else { return };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples");
    t.types(&start("smb-tcp-seal"));
    t.press(&["Enter"]);
    t.wait("? help");
    t.types("/smb2.cmd == 5");
    t.press(&["Enter"]);
    t.wait(" 0 of ");
    t.types("Knowhere");
    t.press(&["Enter"]);
    t.wait("nowhere cannot be read");
    t.types("K");
    t.wait("key file:");
    t.types(&samples.join("smb-tcp-seal/keys.txt").display().to_string());
    t.press(&["Enter"]);
    // everything is read again, with encrypted messages decrypted; the filter stays
    t.wait_for("what was sealed", |screen| {
        screen.contains("filter smb2.cmd == 5") && screen.contains(" frames") && !screen.contains(" 0 of ")
    });
    t.press(&["C-o"]);
    t.wait("open:");
    t.types(&samples.join("smb-roce/smb-roce.pcap").display().to_string());
    t.press(&["Enter"]);
    t.wait("1,079 frames");
    t.types("q");
    t.wait("ready>");
}
