//! The hand-over of frames, texts and decoded batches between threads, in thousands of orders: nobody waits for ever,
//! and the output is that of one thread. Queues are as short here as they can be, so that every thread has to wait for
//! every other.
//!
//! A test that fails prints a schedule, which `shuttle::replay` repeats.

use crate::analysis::{self, Analysis, Run};
use crate::input::Input;
use crate::live::monitor::Monitor;
use crate::output::json::{Json, What};
use crate::output::lines::Lines;
use crate::pool::Pool;
use crate::report::words::Paint;
use crate::report::{Collector, ReportData, Wanted, json, text};
use crate::shards::{Board, Next};
use crate::sheets::{self, Chosen, Form, Limits, Plan, Printer, Shared};
use crate::sync::{lock, thread};
use crate::texts;
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::keys::Keyring;
use rdmascope_analyzer::op::RdmaOp;
use rdmascope_analyzer::report::{Parts, Sink};
use rdmascope_capture::{Capture, CaptureFile, Hardware, LinkType, MappedSource, PcapWriter, Record, Source};
use rdmascope_dissector::extract::Extractor;
use rdmascope_dissector::frame;
use rdmascope_dissector::trace::Detail;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Frames of the capture: as few as every thread needs to have several.
const FRAMES: usize = 9;
/// Orders that a test runs in, of each kind.
const ORDERS: usize = 1500;
/// Moments that a hand-over hangs on at most, of those that are looked for on purpose.
const DEPTH: usize = 3;
/// Bytes of a thread's stack: dissection needs more than the checker's default.
const STACK: usize = 1 << 20;
const ALL: Limits = Limits { read: u64::MAX, shown: u64::MAX };

/// Runs it in many orders.
fn in_every_order(run: impl Fn() + Send + Sync + 'static) {
    let run = Arc::new(run);
    let mut config = shuttle::Config::new();
    config.stack_size = STACK;
    let once = run.clone();
    shuttle::Runner::new(RandomScheduler::new_from_seed(1, ORDERS), config.clone()).run(move || once());
    shuttle::Runner::new(PctScheduler::new_from_seed(2, DEPTH, ORDERS), config).run(move || run());
}

/// The first frames of a sample, between three pairs of hosts by turns.
fn capture() -> Arc<CaptureFile> {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/smb-roce/smb-roce.pcap");
    let sample = CaptureFile::open(sample).expect("a sample");
    let mut writer = PcapWriter::new(Vec::new(), "a capture", LinkType::ETHERNET, 262_144, true).expect("a writer");
    let roce = sample
        .records()
        .map_while(Result::ok)
        .filter(|r| r.bytes.len() > 60 && r.bytes[12..14] == [8, 0] && r.bytes[23] == 17);
    for (n, record) in roce.take(FRAMES).enumerate() {
        let mut bytes = record.bytes.to_vec();
        bytes[28] ^= (n % 3) as u8;
        bytes[32] ^= (n % 3) as u8;
        writer
            .write(&Record::new(record.time_ns, 0, LinkType::ETHERNET, record.wire_len, &bytes))
            .expect("a frame is written");
    }
    Arc::new(CaptureFile::from_bytes(writer.finish().expect("a capture"), "a capture").expect("a capture"))
}

fn how(threads: usize, connections_max: usize) -> Run {
    Run {
        options: Options { connections_max, ..Options::default() },
        threads,
        small: 0,
        filter: None,
        frames: u64::MAX,
    }
}

fn rendered(analysis: Analysis<Collector>) -> String {
    let (data, _) = ReportData::new(analysis);
    format!("{}\n{}", text::render(&data, 120, Paint::new(false)), json::render(&data).expect("a report"))
}

fn report(file: &Arc<CaptureFile>, threads: usize) -> String {
    let input = Input::One(Capture::Mapped(MappedSource::new(file.clone())));
    rendered(analysis::run(input, vec!["a".to_owned()], how(threads, 4096), Collector::new(Wanted::default())))
}

#[test]
fn workers_that_share_connections_come_to_one_report() {
    let file = capture();
    let alone = report(&file, 1);
    in_every_order(move || {
        for threads in [2, 3] {
            let sink = Collector::new(Wanted::default());
            let shared = analysis::run_in_shards(&file, &["a".to_owned()], &how(threads, 4096), &sink);
            assert_eq!(shared.map(rendered).as_ref(), Some(&alone));
            // more connections than are allowed together: all give up
            assert!(analysis::run_in_shards(&file, &["a".to_owned()], &how(threads, 2), &sink).is_none());
        }
    });
}

/// The report of the same frames captured live. How things stand is asked for twice.
fn captured(file: &Arc<CaptureFile>, threads: usize) -> String {
    let options = Options::default();
    let mut monitor = Monitor::new(options, Collector::new(Wanted::default()), &["a".to_owned()], threads);
    let mut source = MappedSource::new(file.clone());
    let mut stood = Vec::new();
    for n in 1.. {
        if !matches!(source.advance(), Ok(true)) {
            break;
        }
        monitor.frame(&source.record(), source.interfaces());
        if n % 4 == 0 {
            let standing = monitor.standing();
            stood.push((standing.capture.frames, standing.totals.connections(), standing.findings.len()));
        }
    }
    let analysis = monitor.end(0, Hardware::default(), None).expect("a report");
    format!("{stood:?}\n{}", rendered(analysis))
}

#[test]
fn workers_of_a_live_capture_come_to_one_report() {
    let file = capture();
    let alone = captured(&file, 1);
    assert!(alone.starts_with("[(4, "), "{alone}");
    in_every_order(move || {
        for threads in [2, 3] {
            assert_eq!(captured(&file, threads), alone);
        }
    });
}

/// Who wants to know how things stand does not wait for a worker that fell, and the fall is seen in the end.
#[test]
fn a_worker_of_a_live_capture_that_falls_leaves_nobody_waiting() {
    /// Falls at the first request that it hears of.
    struct Falls;

    impl Sink for Falls {
        fn op(&mut self, _connection: u32, _op: &RdmaOp<'_>) {
            std::panic::panic_any("fell");
        }
    }

    impl Parts for Falls {
        fn part(&self) -> Self {
            Falls
        }
        fn join(&mut self, _part: Self) -> bool {
            true
        }
        fn exchange_numbers(&mut self, _each: &mut dyn FnMut(&mut u64)) {}
    }

    let file = capture();
    let fell = std::panic::catch_unwind(|| {
        in_every_order(move || {
            let mut monitor = Monitor::new(Options::default(), Falls, &[], 2);
            let mut source = MappedSource::new(file.clone());
            while matches!(source.advance(), Ok(true)) {
                monitor.frame(&source.record(), source.interfaces());
                monitor.standing();
            }
            drop(monitor.end(0, Hardware::default(), None));
        });
    });
    assert!(fell.is_err());
}

#[test]
fn frames_decoded_ahead_come_to_one_report() {
    let file = capture();
    let alone = report(&file, 1);
    in_every_order(move || assert_eq!(report(&file, 3), alone));
}

fn plan(threads: usize, form: Form, detail: Detail) -> Plan {
    Plan {
        form,
        extractor: Extractor::new(),
        filter: None,
        detail,
        short: false,
        chosen: Chosen::default(),
        keyring: Keyring::new(),
        roce_port: 0,
        threads,
        held_max: sheets::HELD_MAX,
    }
}

fn in_json(threads: usize) -> Plan {
    plan(threads, Form::Print(Printer::Json(Json::new(false, What::Values))), Detail::Fields)
}

/// The output, by sheets or by texts. `stop` is the piece from which on nobody reads.
fn written(
    plan: &Plan,
    file: &CaptureFile,
    by_texts: bool,
    limits: Limits,
    stop: usize,
) -> (Vec<u8>, anyhow::Result<Shared>) {
    let (mut out, mut pieces) = (Vec::new(), 0);
    let mut take = |bytes: &[u8]| {
        pieces += 1;
        anyhow::ensure!(pieces <= stop, "nobody reads");
        out.extend_from_slice(bytes);
        Ok(())
    };
    let ended = if by_texts {
        texts::run(plan, file, limits, |slices| {
            take(&slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>())
        })
    } else {
        sheets::run(plan, file, limits, take)
    };
    (out, ended)
}

/// Output of one worker, which hands over to itself.
fn alone(make: fn(usize) -> Plan, limits: Limits) -> Vec<u8> {
    let made = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (file, into) = (capture(), made.clone());
    let mut config = shuttle::Config::new();
    config.stack_size = STACK;
    shuttle::Runner::new(RandomScheduler::new_from_seed(1, 1), config).run(move || {
        let (text, ended) = written(&make(1), &file, false, limits, usize::MAX);
        assert!(matches!(ended, Ok(Shared::All(None, true))));
        *into.lock().expect("no thread panicked") = text;
    });
    made.lock().expect("no thread panicked").clone()
}

fn comes_in_order(make: fn(usize) -> Plan, by_texts: bool) {
    let file = capture();
    let some = Limits { read: 5, shown: 3 };
    let (all, few) = (alone(make, ALL), alone(make, some));
    assert!(!all.is_empty() && few.len() < all.len());
    in_every_order(move || {
        for threads in [2, 3] {
            let (text, ended) = written(&make(threads), &file, by_texts, ALL, usize::MAX);
            assert!(matches!(ended, Ok(Shared::All(None, true))), "{ended:?}");
            assert!(text == all, "{threads} threads wrote {}", String::from_utf8_lossy(&text));
        }
        assert!(written(&make(3), &file, by_texts, some, usize::MAX).0 == few);
    });
}

#[test]
fn sheets_are_written_in_order() {
    comes_in_order(in_json, false);
}

#[test]
fn lines_are_written_in_order() {
    comes_in_order(|threads| plan(threads, Form::Lines(Lines::new(false)), Detail::Line), false);
}

#[test]
fn texts_are_written_in_order() {
    comes_in_order(in_json, true);
}

/// Frames up to there are written once, and one thread goes on behind them.
#[test]
fn what_takes_too_much_memory_is_left_to_one_thread() {
    let file = capture();
    let read = |n| if n == 0 { Vec::new() } else { alone(in_json, Limits { read: n, shown: n }) };
    let beginnings: Vec<Vec<u8>> = (0..=FRAMES as u64).map(read).collect();
    let largest = beginnings.windows(2).map(|two| two[1].len() - two[0].len()).max().expect("frames");
    in_every_order(move || {
        for (by_texts, held_max) in [(false, 0), (true, 0), (false, 3 * largest), (true, largest)] {
            let plan = Plan { held_max, ..in_json(2) };
            let (text, ended) = written(&plan, &file, by_texts, ALL, usize::MAX);
            let frames = match ended.expect("somebody reads") {
                Shared::First(frames, any) => {
                    assert_eq!(any, frames > 0);
                    frames as usize
                }
                Shared::All(error, _) => {
                    assert!(error.is_none() && held_max > 0);
                    FRAMES
                }
            };
            assert!(text == beginnings[frames], "{frames} frames, {}", String::from_utf8_lossy(&text));
        }
    });
}

#[test]
fn a_reader_that_goes_ends_it_for_all() {
    let file = capture();
    let turn = AtomicUsize::new(0);
    in_every_order(move || {
        let stop = turn.fetch_add(1, Ordering::Relaxed) % FRAMES;
        for by_texts in [false, true] {
            assert!(written(&in_json(3), &file, by_texts, ALL, stop).1.is_err());
        }
    });
}

/// A worker that falls gives up, and may do so after any part: the others end, whatever they wait for.
#[test]
fn a_worker_that_falls_leaves_nobody_waiting() {
    let file = capture();
    let turn = AtomicUsize::new(0);
    in_every_order(move || {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let (falls, after) = (turn % 3, turn / 3 % 4);
        let board = Board::<_, _, ()>::new(&file, 3, frame::Options::default(), 4096, |_, _, _| ())
            .with_batches(1)
            .with_pages(2 + turn / 12 % 2, turn / 24 % 2);
        let written = thread::scope(|scope| {
            for worker in 0..3 {
                let board = &board;
                scope.spawn(move || {
                    let mut parts = 0;
                    loop {
                        let heard = board.heard();
                        match board.next(worker) {
                            Next::Part(_) if worker == falls && parts == after => return board.give_up(),
                            Next::Part(part) => {
                                let batch = part.batch;
                                board.done(worker, part, 1);
                                board.put(batch, worker, ());
                                parts += 1;
                            }
                            Next::Full => board.nap(heard),
                            Next::End => return,
                        }
                    }
                });
            }
            let mut written = 0;
            loop {
                let heard = board.heard();
                if board.take_page().is_some() {
                    written += 1;
                } else if board.is_given_up() || (board.is_at_end() && !board.has_pages()) {
                    return written;
                } else {
                    board.nap(heard);
                }
            }
        });
        assert!(written <= FRAMES);
        assert!(board.is_given_up() || written == FRAMES, "{written} written");
    });
}

#[test]
fn results_of_a_pool_come_in_the_order_of_its_jobs() {
    in_every_order(|| {
        for workers in 0..3 {
            let pool = Pool::default();
            let (double, mut taken) = (|n: u32| 2 * n, Vec::new());
            thread::scope(|scope| {
                let _ending = pool.closing();
                for _ in 0..workers {
                    scope.spawn(|| pool.work(double));
                }
                for n in 0..4 {
                    if n == 2 {
                        pool.put(1);
                    }
                    pool.push(n);
                    taken.extend(std::iter::from_fn(|| pool.next(workers, double).expect("no thread panicked")));
                }
                taken.extend(std::iter::from_fn(|| pool.next(0, double).expect("no thread panicked")));
            });
            assert_eq!(taken, [0, 2, 1, 4, 6]);
        }
    });
}

/// One who takes no more results: the workers end, whatever they wait for, and so does one who takes more.
#[test]
fn a_pool_that_is_closed_ends_for_all() {
    in_every_order(|| {
        let pool = Pool::default();
        thread::scope(|scope| {
            let _ending = pool.closing();
            for _ in 0..2 {
                scope.spawn(|| pool.work(|n: u32| n));
            }
            (0..3).for_each(|n| pool.push(n));
            assert_eq!(pool.next(0, |n| n).expect("no thread panicked"), Some(0));
        });
        while let Ok(Some(_)) = pool.next(0, |n| n) {}
    });
}

/// Two who wait, and one who rings for each: the checker would find a ring that gets lost.
#[test]
fn no_ring_is_lost() {
    in_every_order(|| {
        let (bell, work) = (crate::sync::Bell::default(), crate::sync::Mutex::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let heard = bell.heard();
                        let mut left = lock(&work);
                        if *left > 0 {
                            *left -= 1;
                            return;
                        }
                        drop(left);
                        bell.wait(heard);
                    }
                });
            }
            for _ in 0..2 {
                *lock(&work) += 1;
                bell.ring();
            }
        });
    });
}
