//! The screen of every view on real captures, and the effects of keys. No threads are needed: their work is done at
//! once.

mod cached;

use super::app::{App, Effect, Msg, Output, Popup, Write, update};
use super::keys::Keys;
use super::loader::{self, Shared};
use super::redissect::{self, Redissector, Which};
use super::search::Needle;
use super::views::View;
use super::{content, order, run, sort, theme, view};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::episodes::time::Owner;
use rdmascope_capture::hardware::{self, Counter};
use rdmascope_capture::{
    Clock, Existing, Interface, InterfaceStatistics, LinkType, OpenOptions, PcapWriter, PcapngWriter, Record, Section,
    Source, open as open_capture,
};
use rdmascope_dissector::filter::Filter;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The application on a capture, with the work of its threads.
struct TestApp {
    app: App,
    shared: Shared,
    lines: Redissector,
    trees: Redissector,
    /// Effects that were not meant for a thread.
    left: Vec<Effect>,
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(name).join(format!("{name}.pcap"))
}

impl TestApp {
    fn new(name: &str, width: u16, height: u16) -> Self {
        Self::open(&[sample(name)], width, height)
    }

    fn open(files: &[PathBuf], width: u16, height: u16) -> Self {
        Self::open_with(Options::default(), files, width, height)
    }

    fn open_with(options: Options, files: &[PathBuf], width: u16, height: u16) -> Self {
        Self::on(Shared::with(options), files, width, height)
    }

    fn on(shared: Shared, files: &[PathBuf], width: u16, height: u16) -> Self {
        *shared.files.lock().unwrap() = files.to_vec();
        let keys = Keys::new(&BTreeMap::new()).unwrap();
        let title = files[0].file_name().unwrap().to_string_lossy().into_owned();
        let mut app = App::new(title, keys, theme::Name::Dark);
        app.model.size = (width, height);
        let input = loader::open_all(files, false, &shared.stop).unwrap();
        let mut rig = Self {
            app,
            lines: Redissector::new(shared.clone()),
            trees: Redissector::new(shared.clone()),
            shared: shared.clone(),
            left: Vec::new(),
        };
        let mut news = Vec::new();
        loader::run(input, false, false, &shared, |n| {
            news.push(n);
            true
        });
        for n in news {
            rig.send(Msg::News(Box::new(n)));
        }
        rig
    }

    fn send(&mut self, msg: Msg) {
        let mut effects = update(&mut self.app, msg);
        while !effects.is_empty() {
            let effect = effects.remove(0);
            let msg = match effect {
                Effect::Texts { generation, frames, columns } => {
                    Msg::Texts(generation, self.lines.texts(&frames, &columns))
                }
                Effect::Detail(place) => Msg::Detail(Box::new(self.trees.detail(place))),
                Effect::Filter { generation, text } => {
                    let mut filter = Filter::parse(&text, &self.app.model.registry).unwrap();
                    let (mut all, mut upto) = (Vec::new(), 0);
                    Redissector::new(self.shared.clone()).filter(
                        &mut filter,
                        &mut |frames, looked| {
                            all.extend(frames);
                            upto = looked;
                            true
                        },
                        &mut || false,
                    );
                    Msg::Found { generation, frames: all, looked: upto, done: true }
                }
                Effect::Continue => Msg::Continue,
                Effect::Order { table, rows, generation, by, followed, passing, version } => {
                    let exchanges = self.shared.exchanges();
                    let rows = order::make(rows, &exchanges, by, followed.as_deref(), passing.as_deref());
                    Msg::Ordered { table, generation, version, rows }
                }
                Effect::Sort { generation, by, frames } => {
                    let sorted =
                        sort::sort(&mut Redissector::new(self.shared.clone()), by, &frames, &mut |_| true).unwrap();
                    Msg::Sorted { generation, sorted }
                }
                Effect::EndSort(_) => continue,
                Effect::Content { ids, title, client } => {
                    let lines =
                        content::content(&mut self.lines, &ids, &client, content::BYTES_MAX, &mut |_, _| true).unwrap();
                    Msg::Content(title, lines)
                }
                Effect::Find { text, frames, forward } => {
                    Msg::Hit(run::find(&mut self.lines, &text, &frames, forward, &mut |_, _| true).unwrap())
                }
                other => {
                    self.left.push(other);
                    continue;
                }
            };
            effects.extend(update(&mut self.app, msg));
        }
    }

    fn press(&mut self, code: KeyCode) {
        self.send(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    fn keys(&mut self, keys: &str) {
        for c in keys.chars() {
            self.press(if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) });
        }
    }

    fn screen(&self) -> String {
        let (width, height) = self.app.model.size;
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view::draw(&self.app, frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let mut out = String::new();
        for y in 0..height {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// `what_for` sets the screens of a test apart from those of other tests of the same sample.
fn snapshots_for(what_for: &str, name: &str, views: &[View], prepare: impl Fn(&mut TestApp)) {
    for (width, height) in [(80, 24), (160, 48)] {
        let mut rig = TestApp::new(name, width, height);
        prepare(&mut rig);
        for view in views {
            rig.keys(view.key()[0]);
            let what = view.name().to_lowercase().replace('/', "");
            insta::assert_snapshot!(format!("{name}{what_for}-{what}-{width}x{height}"), rig.screen());
        }
    }
}

fn snapshots(name: &str, views: &[View], prepare: impl Fn(&mut TestApp)) {
    snapshots_for("", name, views, prepare);
}

#[test]
fn every_view_of_smb_direct() {
    snapshots("smb-roce", View::ALL, |_| {});
}

#[test]
fn every_view_of_nfs() {
    snapshots("nfs-roce-v3", View::ALL, |_| {});
}

#[test]
fn a_sealed_session_is_read_with_the_keys_given_at_the_start() {
    let capture = sample("smb-tcp-seal");
    let keys = capture.with_file_name("keys.txt");
    let views = |keys: Option<&Path>| {
        let keyring = rdmascope_report::input::keyring(keys).unwrap();
        let mut rig =
            TestApp::open_with(Options { keyring, ..Options::default() }, std::slice::from_ref(&capture), 160, 48);
        rig.keys("3");
        let requests = rig.screen();
        rig.keys("2/smb2.cmd == 5 and smb2.flags.response == 0\n");
        (requests, rig.screen())
    };
    let (requests, frames) = views(Some(&keys));
    assert!(requests.contains("CREATE") && requests.contains("hello.txt"), "{requests}");
    assert!(frames.contains("Create Request"), "{frames}");
    let (requests, frames) = views(None);
    assert!(!requests.contains("CREATE") && !frames.contains("Create Request"), "{requests}{frames}");
}

#[test]
fn a_brush_over_the_slow_requests_filters_every_view() {
    let mut rig = TestApp::new("smb-roce-loss", 120, 30);
    rig.keys("9");
    let all = rig.app.model.exchanges.iter().filter(|(_, e)| e.latency().is_some()).count();
    let slowest = rig.app.model.exchanges.iter().filter_map(|(_, e)| e.latency()).max().unwrap();
    assert!(rig.screen().contains(&format!("{all} requests")), "{}", rig.screen());
    // from the top left to the right end, three rows down: the slow ones
    rig.press(KeyCode::Home);
    rig.press(KeyCode::Tab);
    rig.keys("b");
    rig.press(KeyCode::End);
    for _ in 0..2 {
        rig.press(KeyCode::Down);
    }
    rig.press(KeyCode::Enter);
    let brushed = rig.screen();
    assert!(rig.app.model.filter.text.contains("rdmascope.exchange.time >= "), "{}", rig.app.model.filter.text);
    let least = rig
        .app
        .model
        .filter
        .text
        .split(">= ")
        .nth(1)
        .and_then(|t| t.split(' ').next())
        .and_then(|t| t.parse::<f64>().ok())
        .unwrap();
    let expected =
        rig.app.model.exchanges.iter().filter(|(_, e)| e.latency().is_some_and(|l| l as f64 >= least * 1e9)).count();
    assert!(expected > 0 && expected < all, "{expected} of {all}");
    assert!(brushed.contains(&format!("{expected} request")), "{expected}: {brushed}");
    // and so they are in the table of requests
    rig.keys("3");
    let rows: Vec<i64> = (0..rig.app.states.io.order.len())
        .filter_map(|at| rig.app.model.exchanges.at(rig.app.states.io.order.row(at)?.0 as usize)?.latency())
        .collect();
    assert_eq!((rows.len(), rows.iter().copied().max()), (expected, Some(slowest)));
}

#[test]
fn columns_are_added_moved_and_taken_away() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    let names = |rig: &TestApp| rig.app.model.columns.iter().map(|c| c.name).collect::<Vec<_>>();
    rig.keys("2csmb2.msg_id\ncframe.len\n");
    assert_eq!(names(&rig), ["smb2.msg_id", "frame.len"]);
    rig.keys("cframe.len 1\n");
    assert_eq!(names(&rig), ["frame.len", "smb2.msg_id"]);
    assert!(rig.screen().lines().nth(2).unwrap().contains("frame.len"), "{}", rig.screen());
    rig.keys("csmb2.msg_id\n");
    assert_eq!(names(&rig), ["frame.len"]);
    rig.keys("cframe.len x\n");
    assert!(rig.screen().contains("is not a place"), "{}", rig.screen());
    rig.keys("c\n");
    assert!(names(&rig).is_empty());
}

#[test]
fn a_refused_mount() {
    snapshots("smb-roce-negotiate-refused", &[View::Overview, View::Findings], |_| {});
}

#[test]
fn losses() {
    snapshots("smb-roce-loss", &[View::Overview, View::Frames, View::Sequence], |rig| {
        rig.keys("/rdmascope.retransmission\n")
    });
}

#[test]
fn a_message_in_pieces_shows_its_own_bytes() {
    snapshots_for("-in-pieces", "smb-roce", &[View::Frames], |rig| {
        rig.keys("g372\n");
        assert_eq!(rig.app.model.detail.as_ref().unwrap().number, 372);
    });
}

#[test]
fn a_new_user_sees_why_the_mount_failed() {
    for (width, height) in [(60, 18), (80, 24), (120, 40)] {
        let screen = TestApp::new("smb-roce-negotiate-refused", width, height).screen();
        for part in ["MaxFragmentedSize 130,560", "131,072 is required", "cause", "do"] {
            assert!(screen.contains(part), "{part} at {width}×{height}:\n{screen}");
        }
    }
}

#[test]
fn a_finding_leads_to_its_frame_and_back() {
    let mut rig = TestApp::new("smb-roce-negotiate-refused", 100, 30);
    rig.keys("7");
    let frame = rig.app.model.found[0].frames[0];
    rig.keys("\n");
    assert_eq!(
        (rig.app.model.view, rig.app.model.frame_at(rig.app.states.frames.list.at)),
        (View::Frames, Some(frame as usize - 1))
    );
    assert!(rig.screen().contains("NegotiateResponse"), "{}", rig.screen());
    rig.press(KeyCode::Esc);
    assert_eq!(rig.app.model.view, View::Findings);
    // the third of its frames
    rig.press(KeyCode::Right);
    rig.press(KeyCode::Right);
    let third = rig.app.model.found[0].frames[2];
    rig.keys("\n");
    assert_eq!(rig.app.model.frame_at(rig.app.states.frames.list.at), Some(third as usize - 1));
    rig.keys("7e");
    assert!(matches!(rig.app.popup, Some(Popup::Text(..))) && rig.screen().contains("Usual causes"));
}

/// Following a connection and its content: only its own messages are shown.
#[test]
fn a_connection_is_followed_with_its_content() {
    for (name, first, bytes) in [
        ("smb-roce", "Negotiate Protocol Request", "fe 53 4d 42"),
        ("nfs-roce-v42", "NULL", "00 00 00 02 00 01 86 a3"),
        ("smb-tcp-seal", "Negotiate Protocol Request", "fe 53 4d 42"),
    ] {
        let mut rig = TestApp::new(name, 120, 40);
        rig.keys("C");
        let Some(Popup::Text(title, lines, 0)) = rig.app.popup.clone() else {
            panic!("{name}: {:?}", rig.app.model.note)
        };
        let heads: Vec<&String> = lines.iter().filter(|line| !line.starts_with(' ')).collect();
        assert!(
            title.starts_with("connection 1: ") && heads[0].starts_with("▸ frame ") && heads[0].contains(first),
            "{name}: {}",
            heads[0]
        );
        assert!(heads.iter().any(|line| line.starts_with("◂ frame ")), "{name}: both sides");
        assert!(
            lines[1].starts_with("  0000  ") && lines[1..8].iter().any(|line| line.contains(bytes)),
            "{name}: {}",
            lines[1]
        );
        rig.press(KeyCode::End);
        assert!(rig.screen().contains(heads[heads.len() - 1].split("   ").next().unwrap()), "{}", rig.screen());
    }
    // of two connections the selected one
    let rig = TestApp::new("smb-iwarp-multichannel", 120, 40);
    let mut lines = Redissector::new(rig.shared.clone());
    let frames = |lines: &mut Redissector, connection: usize| -> Vec<u64> {
        let connection = &rig.app.model.report.connections[connection];
        let client = redissect::address(&connection.peers[0].address);
        let said =
            content::content(lines, &connection.followed_as, &client, content::BYTES_MAX, &mut |_, _| true).unwrap();
        let number = |line: &String| line.split(' ').nth(2).and_then(|n| n.parse().ok());
        said.iter().filter(|line| !line.starts_with(' ')).filter_map(number).collect()
    };
    let (one, two) = (frames(&mut lines, 0), frames(&mut lines, 1));
    assert!(one.len() > 100 && two.len() > 50 && one.iter().all(|n| !two.contains(n)), "{} {}", one.len(), two.len());
    // the rest is counted
    let id = &rig.app.model.report.connections[0].followed_as;
    let said = content::content(&mut lines, id, "", 1000, &mut |_, _| true).unwrap();
    assert!(said.last().is_some_and(|line| line.contains("messages are not shown")), "{said:?}");
}

#[test]
fn filters_narrow_complete_and_are_remembered() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("/smb2.cm");
    assert!(rig.screen().contains("unknown field") || rig.screen().contains("smb2.cmd"), "{}", rig.screen());
    rig.press(KeyCode::Tab);
    rig.keys(" == 8\n");
    assert_eq!(
        (rig.app.model.filter.text.as_str(), rig.app.model.view, rig.app.model.row_count()),
        ("smb2.cmd == 8", View::Frames, 12)
    );
    assert!(rig.screen().contains("12 of 1,079 frames"));
    // a wrong one stays in the line and is reported
    rig.keys("/");
    for _ in 0..40 {
        rig.press(KeyCode::Backspace);
    }
    rig.keys("smb2.cmd ==\n");
    assert!(matches!(rig.app.popup, Some(Popup::Prompt(_))) && rig.app.model.note.as_ref().is_some_and(|n| n.is_error));
    rig.press(KeyCode::Esc);
    rig.keys("F");
    assert_eq!((rig.app.model.row_count(), rig.app.model.shown.is_none()), (1079, true));
    // Up has the last one
    rig.keys("/");
    rig.press(KeyCode::Up);
    rig.keys("\n");
    assert_eq!(rig.app.model.row_count(), 12);
}

#[test]
fn a_hidden_frame_is_shown_when_gone_to() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("/smb2.cmd == 8\ng1\n");
    assert_eq!((rig.app.model.filter.is_on(), rig.app.model.frame_at(rig.app.states.frames.list.at)), (false, Some(0)));
    rig.keys("g99999\n");
    assert!(rig.app.model.note.as_ref().is_some_and(|n| n.is_error && n.text.contains("1,079")));
}

#[test]
fn following_narrows_everything() {
    let mut rig = TestApp::new("nfs-roce-v3", 100, 30);
    let all = (rig.app.model.row_count(), rig.app.model.connections().count());
    rig.press(KeyCode::Home);
    rig.press(KeyCode::Down);
    rig.press(KeyCode::Down);
    rig.keys("f");
    assert_eq!(rig.app.model.connections().count(), 1);
    let id = rig.app.model.subject().unwrap().followed_as.clone();
    assert!(rig.app.model.row_count() < all.0 && rig.app.model.row_count() > 50);
    rig.keys("3");
    let rows: Vec<_> = rig.app.states.io.order.iter().collect();
    assert!(
        !rows.is_empty()
            && rows.iter().all(|(i, _)| id.contains(&rig.app.model.exchanges.at(*i as usize).unwrap().connection))
    );
    rig.keys("F");
    assert_eq!((rig.app.model.row_count(), rig.app.model.connections().count()), all);
}

#[test]
fn the_filter_is_obeyed_in_every_view() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    let all = (rig.app.model.found.len(), rig.app.model.exchanges.len());
    // requests by latency, as each view lists them
    rig.keys("/rdmascope.exchange.time > 0.044\n3");
    let slow: Vec<u64> = rig
        .app
        .model
        .exchanges
        .iter()
        .filter(|(_, e)| e.latency().is_some_and(|l| l > 44_000_000))
        .map(|(_, e)| e.id)
        .collect();
    let ids = |rig: &TestApp| -> Vec<u64> {
        rig.app
            .states
            .io
            .order
            .iter()
            .filter_map(|(i, _)| rig.app.model.exchanges.at(i as usize))
            .map(|e| e.id)
            .collect()
    };
    let shown = ids(&rig);
    assert!(
        !slow.is_empty() && slow.len() < all.1 && slow.iter().all(|id| shown.contains(id)) && shown.len() < all.1,
        "{slow:?} {shown:?}"
    );
    rig.keys("1");
    assert!(
        rig.app.model.slowest.iter().all(|e| e.latency().is_some_and(|l| l > 44_000_000))
            && rig.app.model.found.len() <= all.0
    );
    // by command, file and status
    rig.keys("/");
    rig.send(Msg::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    rig.keys("rdmascope.exchange.command == \"READ\" && smb2.nt_status == 0\n3");
    let rows = ids(&rig);
    let reads = |id: &u64| {
        rig.app.model.exchanges.iter().any(|(_, e)| e.id == *id && e.command == "READ" && e.status == Some(0))
    };
    assert!(!rows.is_empty() && rows.iter().all(reads), "{rows:?}");
    rig.keys("6");
    assert!(
        rig.app.states.memory.order.len() > 0
            && rig
                .app
                .states
                .memory
                .order
                .iter()
                .all(|(i, _)| rig.app.model.exchanges.at(i as usize).unwrap().command == "READ")
    );
    // CREATE requests have no keys; the connection has, and its statistics are those of all its frames
    rig.keys("/");
    rig.send(Msg::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    rig.keys("smb2.cmd == 5\n6");
    let screen = rig.screen();
    assert!(screen.contains("None of the ") && screen.contains(" keys passes the filter."), "{screen}");
    rig.keys("8");
    let screen = rig.screen();
    assert!(screen.contains("the filter chooses connections here, not frames"), "{screen}");
    rig.keys("/");
    rig.send(Msg::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    rig.keys("ip.addr == 203.0.113.9\n1");
    assert!(
        rig.app.model.connection_count() == 0
            && rig.app.model.found.is_empty()
            && rig.screen().contains("No problems found in the frames that pass the filter.")
    );
    rig.keys("F");
    assert_eq!((rig.app.model.found.len(), rig.app.model.connection_count() > 0), (all.0, true));
}

#[test]
fn a_field_joins_the_filter() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    rig.keys("/smb2.cmd == 8\n");
    rig.press(KeyCode::Tab);
    let found = (0..500).any(|_| {
        rig.press(KeyCode::Down);
        rig.screen().contains("smb2.msg_id ")
    });
    assert!(found, "{}", rig.screen());
    rig.keys("!");
    assert!(
        rig.app.model.filter.text.starts_with("smb2.cmd == 8 && !(smb2.msg_id == ") && rig.app.model.row_count() == 10,
        "{}",
        rig.app.model.filter.text
    );
    rig.keys("|");
    assert!(rig.app.model.filter.text.starts_with("(smb2.cmd == 8 && !("), "{}", rig.app.model.filter.text);
    rig.keys("&");
    assert!(
        rig.app.model.filter.text.ends_with(')') || rig.app.model.filter.text.contains(") && "),
        "{}",
        rig.app.model.filter.text
    );
}

#[test]
fn sorting_takes_two_keys() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    rig.keys("3S");
    assert!(rig.screen().contains("i  latency"), "{}", rig.screen());
    rig.keys("i");
    let latencies: Vec<_> =
        rig.app.states.io.order.iter().filter_map(|(i, _)| rig.app.model.exchanges.at(i as usize)?.latency()).collect();
    assert!(latencies.is_sorted_by(|a, b| a >= b));
    rig.keys("Si");
    assert!(!rig.app.states.io.order.down);
    rig.keys("1S");
    assert!(rig.app.popup.is_none());
}

#[test]
fn why_a_request_was_slow_takes_one_key() {
    let mut rig = TestApp::new("smb-roce", 120, 30);
    rig.keys("3SiW");
    assert_eq!(rig.app.model.view, View::Sequence);
    let screen = rig.screen();
    assert!(screen.contains("The longest gap: ") && screen.contains("was the server's own."), "{screen}");
    insta::assert_snapshot!("why-120x30", screen);
    rig.press(KeyCode::Esc);
    assert_eq!(rig.app.model.view, View::Io);
    rig.keys("5");
    assert!(!rig.screen().contains("The longest gap"));
    // of a frame, its request
    rig.keys("/smb2.cmd == 8\nW");
    assert!(rig.screen().contains("READ "), "{}", rig.screen());
}

/// The side whose frame ends the longest gap need not be the one that was slow.
#[test]
fn what_held_a_request_up_is_not_the_server() {
    let of = |name: &str, filter: &str| {
        let mut rig = TestApp::new(name, 130, 30);
        rig.keys(&format!("/{filter}\n3W"));
        rig.screen().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let recovered = of("smb-roce-loss", "frame.number >= 661 && frame.number <= 667");
    assert!(recovered.contains("(99 %), was recovery. What held it up: recovery of "), "{recovered}");
    let held = of("smb-iwarp-fallback", "frame.number >= 128 && frame.number <= 133");
    assert!(held.contains("CREATE") && held.contains(", was in the sender's queue. What held it up: "), "{held}");
}

#[test]
fn the_time_of_requests_is_shown_with_all_its_owners() {
    let mut rig = TestApp::new("smb-iwarp-fallback", 160, 48);
    let screen = rig.screen();
    assert!(screen.contains("» send queue") && screen.contains("▒ server"), "{screen}");
    rig.keys("8");
    let screen = rig.screen();
    let read = screen.lines().find(|line| line.trim_start().starts_with("READ ")).unwrap_or_default();
    assert!(read.contains("send queue "), "{screen}");
    // exports have all of it, in whole ns
    for (keys, longest) in [("8", None), ("3", Some("latency_ns"))] {
        rig.keys(keys);
        let rows = rig.app.screen().export(&rig.app.model);
        let place = |name: &str| rows[0].iter().position(|head| head == name).unwrap_or_else(|| panic!("{name}"));
        let owners = Owner::ALL.map(|owner| place(&format!("{}_ns", owner.key())));
        let number = |row: &[String], at: usize| row[at].parse::<i64>().unwrap_or(0);
        let held = rows[1..].iter().map(|row| number(row, place("send_queue_ns"))).max();
        assert!(held > Some(1_000_000), "{rows:?}");
        for row in &rows[1..] {
            let sum: i64 = owners.iter().map(|at| number(row, *at)).sum();
            assert!(longest.is_none_or(|latency| sum == number(row, place(latency))), "{row:?}");
        }
    }
}

#[test]
fn a_search_that_cannot_be_read_says_why() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    for (wrong, why) in [("~(", "regular expression: "), ("#12g", "pairs of hex digits"), ("=smb2.foo", "filter: ")] {
        rig.keys(&format!("2s{wrong}\n"));
        assert!(rig.screen().contains(why), "{wrong}: {}", rig.screen());
        rig.press(KeyCode::Esc);
    }
}

#[test]
fn fields_and_bytes_select_each_other() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    rig.keys("/smb2.cmd == 8\n");
    rig.press(KeyCode::Tab);
    while !rig.screen().contains("smb2.msg_id ") {
        let before = rig.app.states.frames.fields;
        rig.press(KeyCode::Down);
        assert_ne!(rig.app.states.frames.fields, before, "no such field:\n{}", rig.screen());
    }
    rig.keys("yf");
    let Some(Effect::Copy(filter)) = rig.left.pop() else { panic!("nothing was copied") };
    assert!(filter.starts_with("smb2.msg_id == "), "{filter}");
    rig.keys("=");
    assert!(
        rig.app.model.filter.text == filter && rig.app.model.row_count() == 2,
        "{} {}",
        rig.app.model.filter.text,
        rig.app.model.row_count()
    );
    // to the bytes, and to the byte after: another field
    rig.press(KeyCode::Tab);
    for _ in 0..8 {
        rig.press(KeyCode::Right);
    }
    assert!(!rig.screen().contains("─ smb2.msg_id "), "{}", rig.screen());
}

#[test]
fn marked_frames_are_saved() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("2mm\x20");
    assert_eq!(rig.app.model.marks.iter().copied().collect::<Vec<_>>(), [1, 2]);
    rig.keys("w\n");
    let Some(Effect::Write(Write { what: Output::Frames(frames), path, .. })) = rig.left.pop() else {
        panic!("nothing is saved")
    };
    assert_eq!((&frames, path.to_str()), (&Which::These(vec![0, 1]), Some("smb-roce-marked.pcapng")));
    let dir = tempfile();
    let path = dir.join("marked.pcapng");
    assert_eq!(rig.lines.save(&path, &frames, Existing::Keep, &mut |_| true).map(|s| s.frames), Ok(2));
    let mut again = open_capture(&path, OpenOptions::new()).unwrap();
    let mut original = open_capture(sample("smb-roce"), OpenOptions::new()).unwrap();
    for _ in 0..2 {
        let (a, b) = (again.next().unwrap().unwrap(), original.next().unwrap().unwrap());
        assert_eq!((a.bytes, a.time_ns, a.wire_len), (b.bytes, b.time_ns, b.wire_len));
    }
    assert!(again.next().unwrap().is_none());
    std::fs::remove_dir_all(dir).unwrap();
}

/// Writes the file as the worker would.
fn written(rig: &mut TestApp) {
    let Some(Effect::Write(write)) = rig.left.pop() else { panic!("nothing is written") };
    let msg = run::carry_out(&mut Redissector::new(rig.shared.clone()), write, &rig.shared, &mut |_, _, _| true);
    rig.send(msg);
}

#[test]
fn nothing_is_written_onto_the_open_capture() {
    let dir = tempfile();
    let capture = dir.join("frames.pcapng");
    std::fs::copy(sample("smb-roce"), &capture).unwrap();
    let before = std::fs::read(&capture).unwrap();
    let mut rig = TestApp::open(std::slice::from_ref(&capture), 100, 30);
    for keys in ["2w", "2x", "3x"] {
        rig.keys(keys);
        let Some(Popup::Prompt(prompt)) = &mut rig.app.popup else { panic!("no file is asked for") };
        assert!(!prompt.text.ends_with("frames.pcapng") || prompt.text == "frames-frames.pcapng", "{}", prompt.text);
        (prompt.text, prompt.cursor) = (capture.display().to_string(), 0);
        rig.keys("\n");
        written(&mut rig);
        assert!(
            rig.app.model.note.as_ref().is_some_and(|n| n.is_error && n.text.contains("is an input")),
            "{:?}",
            rig.app.model.note
        );
        assert!(std::fs::read(&capture).unwrap() == before);
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_file_is_overwritten_only_after_a_question() {
    let dir = tempfile();
    let path = dir.join("io.csv");
    std::fs::write(&path, "precious").unwrap();
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("3x");
    let Some(Popup::Prompt(prompt)) = &mut rig.app.popup else { panic!("no file is asked for") };
    assert_eq!(prompt.text, "smb-roce-io.csv");
    (prompt.text, prompt.cursor) = (path.display().to_string(), 0);
    rig.keys("\n");
    written(&mut rig);
    assert!(rig.screen().contains("exists already.") && rig.screen().contains("o  overwrite it"), "{}", rig.screen());
    // other keys neither answer the question nor reach the view
    rig.keys("q\n");
    assert!(matches!(rig.app.popup, Some(Popup::Question(_))) && rig.left.is_empty());
    rig.press(KeyCode::Esc);
    assert!(rig.app.popup.is_none() && rig.left.is_empty() && std::fs::read_to_string(&path).unwrap() == "precious");
    rig.keys("x");
    let Some(Popup::Prompt(prompt)) = &mut rig.app.popup else { panic!("no file is asked for") };
    prompt.text = path.display().to_string();
    rig.keys("\n");
    written(&mut rig);
    rig.keys("o");
    written(&mut rig);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("exchange,connection"), "{:?}", rig.app.model.note);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn live_frames_are_not_lost_without_a_question() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("p");
    assert!(rig.app.model.note.as_ref().is_some_and(|n| n.is_error) && rig.left.is_empty());
    rig.app.model.is_live = true;
    rig.keys("q");
    assert!(rig.screen().contains("1,079 captured frames are not saved."), "{}", rig.screen());
    assert!(!rig.left.contains(&Effect::Quit));
    // to save them is one answer
    rig.keys("w");
    let dir = tempfile();
    let Some(Popup::Prompt(prompt)) = &mut rig.app.popup else { panic!("no file is asked for") };
    prompt.text = dir.join("all.pcapng").display().to_string();
    rig.keys("\n");
    written(&mut rig);
    rig.keys("q");
    assert_eq!((rig.left.pop(), rig.app.popup.is_none()), (Some(Effect::Quit), true));
    std::fs::remove_dir_all(dir).unwrap();
    // frames of a filter are not all
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.app.model.is_live = true;
    rig.keys("/smb2\nw\n");
    rig.send(Msg::Done(Ok("saved".to_owned())));
    rig.left.clear();
    rig.keys("R");
    assert!(rig.left.is_empty() && rig.screen().contains("r  restart without saving"), "{}", rig.screen());
    rig.keys("r");
    assert_eq!(rig.left.pop(), Some(Effect::Restart));
    rig.keys("pp");
    assert_eq!(rig.left, [Effect::Pause(true), Effect::Pause(false)]);
}

#[test]
fn a_capture_that_begins_anew_leaves_nothing_of_the_old_one() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("2mm/smb2.cmd == 8\n4");
    let news = loader::News { restarted: true, ..loader::News::default() };
    (*rig.shared.index.lock().unwrap(), *rig.shared.exchanges.lock().unwrap()) = Default::default();
    rig.send(Msg::News(Box::new(news)));
    assert_eq!(
        (
            rig.app.model.index.len(),
            rig.app.model.row_count(),
            rig.app.model.marks.len(),
            rig.app.model.exchanges.len()
        ),
        (0, 0, 0, 0)
    );
    assert!(rig.app.model.found.is_empty() && rig.app.model.subject().is_none() && rig.app.model.filter.is_on());
    for view in "12345678".chars() {
        rig.keys(&view.to_string());
        rig.screen();
    }
}

#[test]
fn reading_asks_before_it_takes_much_memory() {
    let shared = Shared::default();
    shared.frames_max.store(100, std::sync::atomic::Ordering::Relaxed);
    let input = loader::open_all(&[sample("smb-roce")], false, &shared.stop).unwrap();
    let mut rig = TestApp::new("smb-roce", 100, 30);
    let mut asked = Vec::new();
    loader::run(input, false, false, &shared, |n| {
        if let Some(frames) = n.asks {
            // twice on, and then no more
            asked.push(frames);
            rig.send(Msg::News(Box::new(loader::News { asks: Some(frames), ..loader::News::default() })));
            assert!(
                rig.screen().contains(&format!("{frames} frames were read, and there are more.")),
                "{}",
                rig.screen()
            );
            rig.press(KeyCode::Esc);
            rig.keys(if asked.len() < 3 { "g" } else { "s" });
            let Some(Effect::ReadUpTo(most)) = rig.left.pop() else { panic!("no answer") };
            shared.frames_max.store(most, std::sync::atomic::Ordering::Relaxed);
        }
        if n.done {
            assert_eq!(
                (n.index.len(), n.error.as_deref()),
                (400, Some("only the first 400 frames were read, as you asked"))
            );
        }
        true
    });
    assert_eq!(asked, [100, 200, 400]);
}

/// A folder for one test.
fn tempfile() -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let dir = std::env::temp_dir().join(format!(
        "rdmascope-ui-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn every_view_is_exported() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    for view in View::ALL.iter().copied() {
        rig.keys(&format!("{}x\n", view.key()[0]));
        match rig.left.pop() {
            Some(Effect::Write(Write { what: Output::Table(rows), .. })) => {
                assert!(rows.len() > 1 && rows.iter().all(|r| r.len() == rows[0].len()), "{view:?}");
            }
            Some(Effect::Write(Write { what: Output::Lines(frames, _), path, .. })) => {
                assert_eq!((frames.len(), path), (1079, PathBuf::from("smb-roce-frames.csv")));
                let dir = tempfile();
                let path = dir.join("f.csv");
                assert_eq!(rig.lines.export(&path, &frames, &[], Existing::Keep, &mut |_| true), Ok(1079));
                assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1080);
                std::fs::remove_dir_all(dir).unwrap();
            }
            other => panic!("{view:?}: {other:?}"),
        }
    }
    let dir = tempfile();
    let rows = vec![vec!["a".to_owned(), "b,\"c\"".to_owned()]];
    redissect::export_table(&dir.join("t.csv"), &rows, &[], Existing::Keep).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("t.csv")).unwrap(), "a,\"b,\"\"c\"\"\"\r\n");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_credit_plot_zooms_and_its_cursor_leads_to_a_frame() {
    let mut rig = TestApp::new("smb-roce", 120, 40);
    rig.keys("4");
    let all = rig.screen();
    rig.keys("+++");
    let (from, upto) = rig.app.states.credits.window.expect("a part");
    assert_ne!(rig.screen(), all);
    rig.keys("-");
    let wider = rig.app.states.credits.window.expect("a part");
    assert!(wider.0 <= from && wider.1 >= upto && wider.1 - wider.0 > upto - from);
    rig.keys("0");
    assert!(rig.app.states.credits.window.is_none());
    rig.press(KeyCode::Right);
    let frame = super::app::selected_frame(&rig.app).unwrap();
    rig.keys("\n");
    assert_eq!(
        (rig.app.model.view, rig.app.model.frame_at(rig.app.states.frames.list.at)),
        (View::Frames, Some(frame as usize - 1))
    );
}

#[test]
fn searching_goes_from_hit_to_hit() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    rig.keys("2stree connect\n");
    let first = rig.app.states.frames.list.at;
    rig.keys("n");
    let second = rig.app.states.frames.list.at;
    rig.keys("N");
    assert!(first > 0 && second > first && rig.app.states.frames.list.at == first);
    rig.keys("snot there at all\n");
    assert!(rig.app.model.note.as_ref().is_some_and(|n| n.is_error));
    rig.keys("3sWRITE\n");
    assert!(rig.app.states.io.list.at > 0);
}

#[test]
fn searching_wraps_and_understands_bytes_expressions_and_filters() {
    let mut rig = TestApp::new("smb-roce", 160, 30);
    rig.keys("2stree connect\n");
    let first = rig.app.states.frames.list.at;
    // backwards from the first hit there is the last one, and forwards from there the first
    rig.keys("N");
    assert!(
        rig.app.states.frames.list.at > first
            && rig.app.model.note.as_ref().is_some_and(|n| !n.is_error && n.text.contains("other end"))
    );
    rig.keys("n");
    assert!(
        rig.app.states.frames.list.at == first
            && rig.app.model.note.as_ref().is_some_and(|n| n.text.contains("other end"))
    );
    for (what, part) in
        [("~read re(quest|sponse)", "Read Re"), ("#fe534d42400001", "SMB2"), ("=smb2.cmd == 9", "Write Re")]
    {
        rig.press(KeyCode::Home);
        rig.keys(&format!("s{what}\n"));
        let row = rig
            .screen()
            .lines()
            .nth(3 + rig.app.states.frames.list.at - rig.app.states.frames.list.top)
            .unwrap()
            .to_owned();
        assert!(rig.app.states.frames.list.at > 0 && row.contains(part), "{what}: {row}");
    }
    rig.keys("s~(\n");
    assert!(matches!(rig.app.popup, Some(Popup::Prompt(_))) && rig.app.model.note.as_ref().is_some_and(|n| n.is_error));
    rig.press(KeyCode::Esc);
    // in tables too
    rig.keys("3s~^.*WRITE\n");
    let hit = rig.app.states.io.list.at;
    rig.keys("NN");
    assert!(hit > 0 && rig.app.states.io.list.at > 0 && rig.app.model.note.as_ref().is_none_or(|n| !n.is_error));
    rig.keys("s#fe53\n");
    assert!(rig.app.model.note.as_ref().is_some_and(|n| n.is_error && n.text.contains("key 2")));
}

#[test]
fn columns_come_and_go() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    rig.keys("/smb2.cmd == 8\nc");
    rig.keys("smb2.msg_id\n");
    let cells: Vec<String> = rig.app.model.texts.values().map(|t| t.cells.join("")).collect();
    assert!(rig.screen().contains("smb2.msg_id") && cells.iter().any(|c| !c.is_empty()), "{cells:?}");
    rig.keys("cnonsense\n");
    assert!(rig.app.model.note.as_ref().is_some_and(|n| n.is_error));
    rig.keys("c\n");
    assert!(rig.app.model.columns.is_empty());
}

#[test]
fn the_mouse_selects_turns_and_changes_views() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    let mouse = |kind, column, row| Msg::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
    rig.send(mouse(MouseEventKind::Down(MouseButton::Left), 15, 1));
    assert_eq!(rig.app.model.view, View::Frames);
    rig.send(mouse(MouseEventKind::Down(MouseButton::Left), 10, 6));
    assert_eq!(rig.app.states.frames.list.at, 3);
    rig.send(mouse(MouseEventKind::ScrollDown, 10, 6));
    assert_eq!(rig.app.states.frames.list.at, 6);
}

#[test]
fn io_and_memory_are_sorted() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    rig.keys("3oooooooo");
    let latencies = |rig: &TestApp| -> Vec<_> {
        rig.app.states.io.order.iter().map(|(i, _)| rig.app.model.exchanges.at(i as usize).unwrap().latency()).collect()
    };
    let latency = latencies(&rig);
    assert!(latency.len() > 100 && latency.is_sorted_by(|a, b| a >= b));
    rig.keys("O");
    assert!(latencies(&rig).is_sorted());
    // the selection stays
    rig.press(KeyCode::PageDown);
    let selected = super::app::selected_frame(&rig.app);
    rig.keys("o");
    assert_eq!(super::app::selected_frame(&rig.app), selected);
    rig.keys("6ooo");
    let lengths: Vec<_> = rig
        .app
        .states
        .memory
        .order
        .iter()
        .map(|(i, d)| rig.app.model.exchanges.at(i as usize).unwrap().descriptors[usize::from(d)].length)
        .collect();
    assert!(!lengths.is_empty() && lengths.is_sorted());
    // a click on a head sorts by it, and again the other way round
    let mouse = |column, row| {
        Msg::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row,
            modifiers: KeyModifiers::NONE,
        })
    };
    let at = rig.screen().lines().nth(2).unwrap().find("used").unwrap() as u16;
    for down in [false, true] {
        rig.send(mouse(at, 2));
        assert_eq!((rig.app.states.memory.order.by, rig.app.states.memory.order.down), (4, down));
    }
}

/// Cells of one column of the frame list, from the top.
fn listed(rig: &mut TestApp, cell: impl Fn(&super::redissect::Text) -> String) -> Vec<String> {
    let places: Vec<usize> = (0..rig.app.model.row_count()).filter_map(|row| rig.app.model.frame_at(row)).collect();
    let mut ascending = places.clone();
    ascending.sort_unstable();
    let columns = rig.app.model.columns.clone();
    let texts = rig.lines.texts(&ascending, &columns);
    places.iter().map(|p| cell(&texts[ascending.binary_search(p).unwrap()])).collect()
}

#[test]
fn frames_are_sorted_by_any_column() {
    let mut rig = TestApp::new("smb-roce", 160, 48);
    rig.keys("2");
    let entry = |rig: &TestApp| -> Vec<_> {
        (0..rig.app.model.row_count())
            .map(|row| rig.app.model.index.at(rig.app.model.frame_at(row).unwrap()).copied().unwrap())
            .collect()
    };
    // the last frame is the first one
    rig.keys("O");
    assert_eq!((rig.app.model.frame_at(0), rig.app.model.frame_at(1078)), (Some(1078), Some(0)));
    rig.keys("O");
    assert_eq!(rig.app.model.frame_at(0), Some(0));
    // Time, Source, Destination, Protocol, Len, Info
    rig.keys("oo");
    assert!(rig.screen().contains("Source▴") && rig.screen().contains("sorted by Source"), "{}", rig.screen());
    let mut sources = listed(&mut rig, |t| t.src.clone());
    sources.dedup();
    assert!(
        sources.len() > 2 && sources.iter().collect::<std::collections::HashSet<_>>().len() == sources.len(),
        "{sources:?}"
    );
    rig.keys("oo");
    assert!(listed(&mut rig, |t| t.protocol.to_owned()).is_sorted());
    rig.keys("oO");
    assert!(entry(&rig).is_sorted_by(|a, b| a.wire_len >= b.wire_len));
    rig.keys("o");
    let info = listed(&mut rig, |t| t.info.clone());
    assert!(info.is_sorted() && info.len() == 1079);
    rig.keys("O");
    assert!(listed(&mut rig, |t| t.info.clone()).is_sorted_by(|a, b| a >= b));
    // the frames of a filter, by a field; frames without the field come last, in both orders
    rig.keys("csmb2.msg_id\n/smb_direct\n");
    let by_field = |rig: &mut TestApp| -> Vec<Option<u64>> {
        listed(rig, |t| t.cells[0].clone()).iter().map(|c| c.split(", ").next().unwrap().parse().ok()).collect()
    };
    while !matches!(rig.app.model.sorting.by, super::sort::By::Field(_)) {
        rig.keys("o");
    }
    let up = by_field(&mut rig);
    let keyed = up.iter().flatten().count();
    assert!(
        keyed > 100 && keyed < up.len() && up[..keyed].is_sorted() && up[keyed..].iter().all(Option::is_none),
        "{up:?}"
    );
    rig.keys("O");
    let down = by_field(&mut rig);
    assert!(down[..keyed].is_sorted_by(|a, b| a >= b) && down[keyed..].iter().all(Option::is_none));
    // a frame is found in it, and exported in this order
    rig.keys("G");
    let last = rig.app.model.frame_at(rig.app.model.row_count() - 1);
    assert_eq!(rig.app.model.frame_at(rig.app.states.frames.list.at), last);
    rig.keys("x\n");
    let Some(Effect::Write(Write { what: Output::Lines(frames, _), .. })) = rig.left.pop() else {
        panic!("nothing is exported")
    };
    let dir = tempfile();
    let path = dir.join("f.csv");
    assert_eq!(rig.lines.export(&path, &frames, &[], Existing::Keep, &mut |_| true), Ok(frames.len() as u64));
    let text = std::fs::read_to_string(&path).unwrap();
    let numbers: Vec<usize> = text.lines().skip(1).map(|l| l.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, frames.iter().map(|i| i + 1).collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "what was put aside is gone");
    std::fs::remove_dir_all(dir).unwrap();
    // saved in the order of the capture
    rig.keys("w\n");
    let Some(Effect::Write(Write { what: Output::Frames(frames), .. })) = rig.left.pop() else {
        panic!("nothing is saved")
    };
    assert!(frames.iter().is_sorted());
    // without the column, the order is the default again
    rig.keys("c\n");
    assert!(!rig.app.model.sorting.is_on());
    // a click on a head
    let mouse = |column, row| {
        Msg::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column,
            row,
            modifiers: KeyModifiers::NONE,
        })
    };
    let at = rig.screen().lines().nth(2).unwrap().chars().collect::<String>().find("Len").unwrap() as u16;
    for down in [false, true] {
        rig.send(mouse(at, 2));
        assert_eq!((rig.app.model.sorting.by, rig.app.model.sorting.down), (super::sort::By::Length, down));
    }
}

#[test]
fn half_a_file_is_none() {
    let mut rig = TestApp::new("smb-roce", 100, 30);
    let dir = tempfile();
    let path = dir.join("half.csv");
    let backwards = Which::These((0..1079).rev().collect());
    for frames in [rig.app.model.frames_shown(), backwards] {
        assert_eq!(
            rig.lines.export(&path, &frames, &[], Existing::Keep, &mut |_| false),
            Err(redissect::GIVEN_UP.into())
        );
        assert_eq!(rig.lines.save(&path, &frames, Existing::Keep, &mut |_| false), Err(redissect::GIVEN_UP.into()));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }
    // a search in a list in another order finds the next one in that order
    let backwards = Which::These((0..1079).rev().collect());
    let mut needle = Needle::parse("tree connect", &rig.app.model.registry).unwrap();
    let forward = rig.lines.find(&mut needle, &rig.app.model.frames_shown(), true, &mut |_| true).unwrap();
    assert_eq!(rig.lines.find(&mut needle, &backwards, false, &mut |_| true), Ok(forward));
    assert!(rig.lines.find(&mut needle, &backwards, true, &mut |_| true).unwrap() > forward);
    assert!(
        rig.lines
            .find(
                &mut Needle::parse("not there", &rig.app.model.registry).unwrap(),
                &rig.app.model.frames_shown(),
                true,
                &mut |_| false
            )
            .is_err()
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn sorting_is_given_up() {
    let rig = TestApp::new("smb-roce", 100, 30);
    for by in super::sort::By::USUAL {
        let which = rig.app.model.frames_shown();
        let sorted = sort::sort(&mut Redissector::new(rig.shared.clone()), by, &which, &mut |_| false);
        assert!(sorted.is_none(), "{by:?} went on");
    }
    let mut rig = rig;
    rig.keys("2");
    // while keys are read the list is unchanged, and Esc keeps it so
    let effects = update(&mut rig.app, Msg::Key(KeyEvent::new(KeyCode::Char('o'), KeyModifiers::NONE)));
    assert!(effects.iter().any(|e| matches!(e, Effect::Sort { .. })) && rig.app.model.frame_at(5) == Some(5));
    assert!(rig.screen().contains("sorting by Time 0 %, Esc ends it"), "{}", rig.screen());
    let effects = update(&mut rig.app, Msg::Key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
    assert!(
        matches!(effects[..], [Effect::EndSort(generation)] if generation == rig.app.model.sorting.generation),
        "{effects:?}"
    );
    assert!(!rig.app.model.sorting.is_on() && rig.app.model.view == View::Frames);
}

#[test]
fn the_handshake_belongs_to_its_connection() {
    let mut rig = TestApp::new("smb-roce", 120, 40);
    rig.keys("f2");
    let protocol_of = |rig: &mut TestApp| -> Vec<String> {
        let places: Vec<usize> = (0..rig.app.model.row_count()).filter_map(|row| rig.app.model.frame_at(row)).collect();
        rig.lines.texts(&places, &[]).into_iter().map(|t| t.info).collect()
    };
    let info = protocol_of(&mut rig);
    for message in ["ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest", "DisconnectReply"] {
        assert_eq!(
            info.iter().filter(|i| i.contains(message)).count(),
            1,
            "{message}: {:#?}",
            info.iter().take(8).collect::<Vec<_>>()
        );
    }
    // and is shown in its sequence
    rig.keys("5");
    assert!(rig.screen().contains("ConnectRequest"), "{}", rig.screen());
}

#[test]
fn the_fields_of_a_frame_name_its_interface() {
    let dir = tempfile();
    let path = dir.join("named.pcapng");
    let rig = TestApp::new("smb-roce", 120, 40);
    let section = rdmascope_capture::Section::default();
    let mut writer = rdmascope_capture::PcapngWriter::create(&path, &section).unwrap();
    let mut interface = rdmascope_capture::Interface::new(LinkType::ETHERNET);
    interface.name = Some("mlx5_0 port 1".into());
    writer.add_interface(&interface).unwrap();
    let mut source = open_capture(sample("smb-roce"), OpenOptions::new()).unwrap();
    for _ in 0..3 {
        let record = source.next().unwrap().unwrap();
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
    drop(rig);
    let mut rig = TestApp::open(&[path], 120, 40);
    let tree = rig.trees.detail(1).tree;
    let node = tree.all("frame.interface_name").next().expect("a name");
    let mut text = String::new();
    rdmascope_dissector::render::value_label(&mut text, node.def, tree.stored(node));
    assert!(text.contains("mlx5_0 port 1"), "{text}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn credits_and_sequence_are_about_what_was_selected() {
    let mut rig = TestApp::new("nfs-roce-v3", 120, 40);
    // the ladder begins at the request that was selected
    rig.keys("3ooooo");
    let exchange = super::io::selected(&rig.app.states.io, &rig.app.model).unwrap();
    let (frame, connection) = (exchange.request.frame, exchange.connection);
    rig.keys("5");
    assert!(rig.app.model.subject().unwrap().followed_as.contains(&connection));
    assert_eq!(super::app::selected_frame(&rig.app), Some(frame), "{}", rig.screen());
    rig.keys("34");
    assert_eq!(super::app::selected_frame(&rig.app), Some(frame), "{}", rig.screen());
    // the frames of an exchange are visited one by one
    rig.keys("3");
    rig.press(KeyCode::Tab);
    rig.press(KeyCode::Right);
    let second =
        super::io::frames_of(&rig.app.model, super::io::selected(&rig.app.states.io, &rig.app.model).unwrap(), 9)[1];
    rig.press(KeyCode::Enter);
    assert_eq!(
        (rig.app.model.view, rig.app.model.frame_at(rig.app.states.frames.list.at)),
        (View::Frames, Some(second as usize - 1))
    );
}

#[test]
fn the_smallest_screen_says_what_frames_say() {
    let mut rig = TestApp::new("smb-roce", 60, 18);
    rig.keys("2g24\n");
    let screen = rig.screen();
    assert!(screen.contains("Info") && screen.contains("NegotiateRequest"), "{screen}");
    // and its help fits its column
    rig.keys("?");
    let screen = rig.screen();
    let line = screen.lines().find(|l| l.contains("slowest I/O")).unwrap();
    assert!(line.contains("│                    ") && !line.contains('1'), "{screen}");
}

#[test]
fn any_size_is_drawn() {
    let mut rig = TestApp::new("smb-roce", 80, 24);
    for (width, height) in [(60, 18), (61, 19), (79, 50), (149, 20), (150, 18), (300, 100), (1, 1), (20, 5), (59, 18)] {
        rig.send(Msg::Resize(width, height));
        for view in View::ALL.iter().copied() {
            rig.keys(view.key()[0]);
            let screen = rig.screen();
            let small = width < 60 || height < 18;
            assert_eq!(small && width > 15, screen.contains("The terminal is"), "{width}×{height} {view:?}\n{screen}");
        }
        rig.keys("?");
        rig.screen();
        rig.press(KeyCode::Esc);
        rig.keys("/sm");
        rig.screen();
        rig.press(KeyCode::Esc);
    }
}

#[test]
fn keys_in_any_order_do_no_harm() {
    let mut rig = TestApp::new("smb-roce-negotiate-refused", 80, 24);
    let mut state = 1_u32;
    let all: Vec<char> =
        "123456789b[]jkhlgGfFs nNmM'\"tToOcywxz*e?+-0=/ \n".chars().chain("smb2.cmd == 8 0123".chars()).collect();
    for step in 0..3000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pick = (state >> 8) as usize;
        match pick % 9 {
            0 => rig.press(KeyCode::Esc),
            1 => rig.press(KeyCode::Tab),
            2 => rig.press(KeyCode::PageDown),
            3 => rig.press(KeyCode::Up),
            4 => rig.press(KeyCode::Enter),
            _ => rig.keys(&all[pick / 9 % all.len()].to_string()),
        }
        rig.left.clear();
        if step % 10 == 0 {
            rig.screen();
        }
    }
}

#[test]
fn no_colours_means_none() {
    let mut rig = TestApp::new("smb-roce", 120, 40);
    rig.app.model.theme = theme::Theme::new(theme::Name::Mono, theme::Depth::Many);
    for view in View::ALL.iter().copied() {
        rig.keys(view.key()[0]);
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| view::draw(&rig.app, frame.buffer_mut())).unwrap();
        use ratatui::style::Color;
        assert!(terminal.backend().buffer().content().iter().all(|c| c.fg == Color::Reset && c.bg == Color::Reset));
    }
}

#[test]
fn a_hostile_name_does_not_reach_the_terminal() {
    let mut rig = TestApp::new("smb-roce", 120, 40);
    rig.app.model.title = "a\x1b[2Jb\u{202e}c".to_owned();
    rig.app.model.exchanges.change(|e| e.file = Some("\x1b]0;owned\x07\u{202e}x".into()));
    for view in View::ALL.iter().copied() {
        rig.keys(view.key()[0]);
        let screen = rig.screen();
        assert!(!screen.chars().any(|c| c != '\n' && rdmascope_dissector::render::is_unsafe(c)), "{view:?}");
    }
}

#[test]
fn several_files_are_one() {
    let rig = TestApp::open(&[sample("smb-roce"), sample("nfs-roce-v3")], 120, 40);
    assert_eq!(rig.app.model.index.len(), 1079 + 561);
    assert_eq!(rig.app.model.connections().count(), 7);
}

#[test]
fn a_long_past_is_replayed_in_part_and_says_so() {
    let mut rig = TestApp::new("smb-roce", 120, 40);
    let wanted: Vec<usize> = (700..760).collect();
    let exact = rig.lines.texts(&wanted, &[]);
    assert!(rig.trees.detail(1000).is_exact);
    let mut short = Redissector::new(rig.shared.clone());
    short.exact_max = 100;
    let bounded = short.texts(&wanted, &[]);
    let same = exact.iter().zip(&bounded).filter(|(a, b)| a.info == b.info && a.protocol == b.protocol).count();
    assert!(same * 10 >= wanted.len() * 9, "{same} of {}", wanted.len());
    assert!(!short.detail(1000).is_exact);
    // rows far from each other, there and back
    let far = [40, 400, 1040];
    let texts = short.texts(&far, &[]);
    assert_eq!(texts.iter().map(|t| t.number).collect::<Vec<_>>(), [41, 401, 1041]);
    assert_eq!(short.texts(&[40], &[])[0].info, rig.lines.texts(&[40], &[])[0].info);
    // continuing from a position gives the same as reading from the start
    let (mut a, mut b) = (Redissector::new(rig.shared.clone()), Redissector::new(rig.shared.clone()));
    for place in (300..420).step_by(7) {
        let (one, other) = (a.detail(place), b.texts(&[place], &[]));
        assert_eq!(one.tree.info, other[0].info, "frame {}", place + 1);
    }
}

/// Counters of a device during the capture are shown beside the frames.
#[test]
fn what_devices_counted_is_shown_over_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counted.pcapng");
    let mut source = open_capture(sample("smb-roce"), OpenOptions::new()).unwrap();
    let mut writer = PcapngWriter::create(&path, &Section::default()).unwrap();
    writer.add_interface(&Interface { clock: Clock::NANOSECONDS, ..Interface::new(LinkType::ETHERNET) }).unwrap();
    let counted = |time_ns: i64, value: u64| {
        let counters = [Counter { device: "mlx5_0".to_owned(), port: 1, name: "out_of_sequence".to_owned(), value }];
        (InterfaceStatistics { time_ns, ..InterfaceStatistics::default() }, hardware::comments(&counters))
    };
    let mut frames = 0;
    while let Some(record) = source.next().unwrap() {
        frames += 1;
        if frames % 200 == 1 {
            let (statistics, comments) = counted(record.time_ns, 100 + frames);
            writer.write_statistics_with_comments(0, &statistics, &comments).unwrap();
        }
        writer.write(&Record::new(record.time_ns, 0, LinkType::ETHERNET, record.wire_len, record.bytes)).unwrap();
    }
    writer.finish().unwrap();
    let mut rig = TestApp::open(&[path], 120, 60);
    rig.press(KeyCode::Char('8'));
    let screen = rig.screen();
    let line = screen.lines().find(|l| l.contains("mlx5_0/1 out_of_sequence")).unwrap_or_else(|| panic!("{screen}"));
    assert!(line.contains("1,000") && line.contains('█'), "{line}");
}

/// Rate, marks and retransmissions are shown below each other, on one axis.
#[test]
fn the_network_is_shown_over_time() {
    for (name, height) in [("roce-marks-unanswered", 30), ("smb-roce-loss", 60)] {
        let mut rig = TestApp::new(name, 120, height);
        rig.press(KeyCode::Char('8'));
        let screen = rig.screen();
        let from = screen.find("the network over time").unwrap_or_else(|| panic!("{screen}"));
        let lines: Vec<&str> = screen[from..].lines().take_while(|line| !line.starts_with(" lost by")).collect();
        insta::assert_snapshot!(format!("{name}-over-time"), lines.join("\n"));
    }
}

/// A capture of one frame, and one of frames at the same moment, have an axis that nothing divides by zero on.
#[test]
fn a_moment_has_no_time_to_show() {
    let folder = tempfile::tempdir().unwrap();
    for frames in [1, 3] {
        let path = folder.path().join("moment.pcap");
        let mut source = open_capture(sample("roce-marks-unanswered"), OpenOptions::new()).unwrap();
        let mut writer = PcapWriter::create(&path, LinkType::ETHERNET, 0, true).unwrap();
        for _ in 0..frames {
            let record = source.next().unwrap().expect("a frame");
            writer.write(&Record::new(1_000_000_000, 0, LinkType::ETHERNET, record.wire_len, record.bytes)).unwrap();
        }
        writer.finish().unwrap();
        let mut rig = TestApp::open(&[path], 120, 40);
        rig.press(KeyCode::Char('8'));
        assert!(!rig.screen().contains("the network over time"), "{}", rig.screen());
    }
}

/// Real frames repeated, each time between other hosts, so that all connections differ. (Their checksums are wrong, and
/// reported as such.)
fn many_frames(path: &Path, frames: usize) {
    let mut source = open_capture(sample("smb-roce"), OpenOptions::new()).unwrap();
    let mut records = Vec::new();
    while let Some(r) = source.next().unwrap() {
        records.push((r.time_ns, r.bytes.to_vec()));
    }
    let (first, lasted) = (records[0].0, records[records.len() - 1].0 - records[0].0 + 1_000_000);
    let mut writer = PcapWriter::create(path, LinkType::ETHERNET, 0, true).unwrap();
    let mut written = 0;
    for round in 0_u32.. {
        for (time, bytes) in &mut records {
            if bytes.len() > 34 && bytes[12..14] == [8, 0] {
                let [_, _, high, low] = round.to_be_bytes();
                (bytes[27], bytes[28], bytes[31], bytes[32]) = (high, low, high, low);
            }
            let time = *time - first + 1_000_000_000 + i64::from(round) * lasted;
            writer.write(&Record::new(time, 0, LinkType::ETHERNET, bytes.len() as u32, bytes)).unwrap();
            written += 1;
            if written == frames {
                writer.finish().unwrap();
                return;
            }
        }
    }
}

/// Time to draw one screen: wall clock and processor.
#[derive(Clone, Copy)]
struct DrawTime {
    wall: Duration,
    cpu: Duration,
}

fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Loads a capture while a view is repeatedly drawn and its list is paged through. Returns the time for each screen.
fn draw_while_loading(path: &Path, view: View, first: &mut Option<Duration>) -> (App, Vec<DrawTime>, Duration) {
    let shared = Shared::default();
    let mut app = App::new("million.pcap".to_owned(), Keys::new(&BTreeMap::new()).unwrap(), theme::Name::Dark);
    app.model.size = (160, 48);
    let begun = Instant::now();
    let input = loader::open_all(&[path.to_owned()], false, &shared.stop).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let loading = {
        let shared = shared.clone();
        std::thread::spawn(move || loader::run(input, false, false, &shared, |news| tx.send(news).is_ok()))
    };
    let mut terminal = Terminal::new(TestBackend::new(160, 48)).unwrap();
    let mut took = Vec::new();
    let mut beside: Vec<Msg> = Vec::new();
    loop {
        // in parallel to the screen, as in the program
        let news = match rx.try_recv() {
            Ok(news) => Some(news),
            Err(std::sync::mpsc::TryRecvError::Empty) => None,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
        };
        let (wall, used) = (Instant::now(), cpu());
        let mut effects = Vec::new();
        if let Some(news) = news {
            effects.extend(update(&mut app, Msg::News(Box::new(news))));
            first.get_or_insert_with(|| begun.elapsed());
        }
        for msg in beside.drain(..) {
            effects.extend(update(&mut app, msg));
        }
        super::app::act(&mut app, super::keys::Action::View(view));
        super::app::act(&mut app, super::keys::Action::PageDown);
        effects.extend(update(&mut app, Msg::Continue));
        terminal.draw(|frame| view::draw(&app, frame.buffer_mut())).unwrap();
        took.push(DrawTime { wall: wall.elapsed(), cpu: cpu() - used });
        for effect in effects {
            if let Effect::Order { table, rows, generation, by, followed, passing, version } = effect {
                let exchanges = shared.exchanges();
                let rows = order::make(rows, &exchanges, by, followed.as_deref(), passing.as_deref());
                beside.push(Msg::Ordered { table, generation, version, rows });
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    loading.join().unwrap();
    (app, took, begun.elapsed())
}

/// `tui/benches/load.sh`. With `CAPTURE` set, of that file in place of the million frames.
#[test]
#[ignore = "a benchmark: run it in a release build"]
fn a_million_frames_load_while_the_screen_stays_quick() {
    const FRAMES: usize = 1_000_000;
    let dir = tempfile();
    let given = std::env::var_os("CAPTURE").map(PathBuf::from);
    let path = given.clone().unwrap_or_else(|| dir.join("million.pcap"));
    if given.is_none() {
        many_frames(&path, FRAMES);
    }
    let (mut all, mut first) = (Vec::new(), None);
    println!("view        screens     median    p99 CPU        p99      worst");
    let print = |name: &str, took: &[DrawTime]| {
        let quantile = |of: fn(&DrawTime) -> Duration, per_cent: usize| {
            let mut sorted: Vec<Duration> = took.iter().map(of).collect();
            sorted.sort_unstable();
            sorted[(sorted.len() * per_cent / 100).min(sorted.len() - 1)]
        };
        let [median, cpu, p99, worst] =
            [quantile(|t| t.wall, 50), quantile(|t| t.cpu, 99), quantile(|t| t.wall, 99), quantile(|t| t.wall, 100)]
                .map(|d| format!("{:.2} ms", d.as_secs_f64() * 1e3));
        println!("{name:<12}{:>7}{median:>11}{cpu:>11}{p99:>11}{worst:>11}", took.len());
        (quantile(|t| t.cpu, 99), quantile(|t| t.wall, 99))
    };
    let (mut frames, mut bytes, mut seconds) = (0, 0, 0.0);
    for view in View::ALL.iter().copied() {
        let (app, took, lasted) = draw_while_loading(&path, view, &mut first);
        print(view.name(), &took);
        all.extend(took);
        (frames, bytes) = (app.model.index.len(), app.model.index.bytes());
        seconds += lasted.as_secs_f64() / View::ALL.len() as f64;
    }
    let (cpu, wall) = print("all", &all);
    println!(
        "{frames} frames in {seconds:.2} s; first screen after {:.0} ms; index {:.2} B a frame",
        first.unwrap().as_secs_f64() * 1e3,
        bytes as f64 / frames as f64
    );
    std::fs::remove_dir_all(dir).unwrap();
    assert!(given.is_some() || frames == FRAMES);
    assert!(bytes <= 33 * frames, "more than 32 bytes a frame and a pointer a chunk");
    let limit = Duration::from_millis(16);
    assert!(cpu < limit && wall < limit, "a screen took too long");
}

/// The first sentence is that of the report, also where there is no storage.
#[test]
fn the_overview_has_the_first_sentence_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(sample("smb-roce")).unwrap();
        change(&mut bytes);
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    // the first frames are of ICMPv6
    let none = file("none.pcap", &|bytes| bytes.truncate(24 + 16 + 90));
    let empty = file("empty.pcap", &|bytes| bytes.truncate(24));
    let unknown = file("unknown.pcap", &|bytes| bytes[20..24].copy_from_slice(&[0xff, 0xff, 0, 0]));
    for (path, words) in [
        (none, "– No storage over RDMA in this capture."),
        (empty, "– The capture has no frames."),
        (unknown, "– No frame could be decoded: link type 65535 is not known."),
    ] {
        let mut rig = TestApp::open(&[path], 120, 30);
        rig.keys("1");
        assert!(rig.screen().contains(words), "{}", rig.screen());
    }
}
