//! A live analysis by several threads: each follows whole connections, as those do that share a file
//! ([`crate::shards`]).
//!
//! ```text
//!   rings ─▶ source ─▶ route ─┬▶ tasks 0 ─▶ worker 0 ─┐
//!                copied once  └▶ tasks n ─▶ worker n ─┴▶ standings at watermarks; in the end the report
//! ```
//! The thread that has the source reads all rings, since what comes through one of them (a pause of the link, a copy
//! in a tunnel) tells of connections whose packets come through another. It copies frames out of the rings, so that a
//! worker that is behind does not keep them full, and hands over what there is before it waits for more. Frames have
//! the numbers and the order that one thread would give them.

use crate::analysis::feed;
use crate::dissection::Before;
use crate::live::endless::{Follower, expire, mpa_port};
use crate::shards::{BATCH, BATCH_BYTES, Part};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, lock, mpsc, thread};
use rdmascope_analyzer::env::Options;
use rdmascope_analyzer::op::At;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline, Route, Router, Standing, finish_endless};
use rdmascope_analyzer::report::{Parts, Report};
use rdmascope_capture::{Chunk, Interface, Place, Record};
use std::sync::Arc;

/// Batches that wait for a worker at most: about 5 MiB. What comes meanwhile waits in the ring.
const WAITING: usize = if cfg!(test) { 2 } else { 16 };
/// Bytes of a chunk's room: a batch, and the frame that ends it.
const ROOM: usize = BATCH_BYTES as usize + (64 << 10);
/// TCP ports of MPA handshakes that wait to be told at most.
const PORTS_MAX: usize = 64;

/// A frame that was routed: its place in the chunk, and what is known of those before it.
type Kept = (Place, Before);

/// What a worker does next.
enum Task {
    /// Follows these frames.
    Frames(Part<Kept>),
    /// All workers have come to a frame.
    Watermark(Watermark),
}

/// What is done when all workers have come to the frame `last`.
#[derive(Clone)]
struct Watermark {
    last: At,
    /// Now, in ns since 1970, if connections are to be dropped that ended or are idle.
    expire_at: Option<i64>,
    /// Who wants to know how things stand.
    standing: Option<mpsc::Sender<(usize, Standing)>>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    /// By worker: packets that the capture lost of its connections.
    lost: Vec<AtomicU64>,
    /// To be filled again.
    parts: Mutex<Vec<Part<Kept>>>,
    chunks: Mutex<Vec<Chunk>>,
    /// TCP ports of MPA handshakes that were not told yet, and whether there are some.
    ports: Mutex<Vec<u16>>,
    has_ports: AtomicBool,
}

impl Shared {
    fn lost_but(&self, worker: usize) -> u64 {
        let others = self.lost.iter().enumerate().filter(|(n, _)| *n != worker);
        others.map(|(_, lost)| lost.load(Ordering::Relaxed)).sum()
    }

    fn give_back(&self, mut part: Part<Kept>) {
        self.let_go(std::mem::take(&mut part.chunk));
        part.clear();
        lock(&self.parts).push(part);
    }

    /// The last one who has a chunk gives it back.
    fn let_go(&self, chunk: Arc<Chunk>) {
        if let Some(mut chunk) = Arc::into_inner(chunk) {
            chunk.clear();
            lock(&self.chunks).push(chunk);
        }
    }
}

/// The workers, and the frames that are on the way to them.
pub struct Workers<S> {
    router: Router,
    shared: Arc<Shared>,
    tasks: Vec<mpsc::SyncSender<Task>>,
    threads: Vec<thread::JoinHandle<Pipeline<S>>>,
    /// The batch at hand: by worker its frames, and the bytes of all.
    parts: Vec<Part<Kept>>,
    chunk: Chunk,
    frames: u64,
    last: At,
    interfaces: Arc<[Interface]>,
}

impl<S: Parts + Send + 'static> Workers<S> {
    /// Begins, with this number of workers.
    pub fn new(workers: usize, options: &Options, sink: &S) -> Self {
        let lost = (0..workers).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { lost, ..Shared::default() });
        let pipelines: Vec<Pipeline<S>> =
            (0..workers).map(|worker| Pipeline::endless_shard(options.clone(), sink.part(), worker, workers)).collect();
        let decode = pipelines.first().map(Pipeline::decode_options).unwrap_or_default();
        let (tasks, threads) = pipelines
            .into_iter()
            .enumerate()
            .map(|(number, pipeline)| {
                let (sender, tasks) = mpsc::sync_channel(WAITING);
                let worker = Worker { number, follower: Follower::new(pipeline), shared: shared.clone() };
                (sender, thread::spawn(move || worker.run(&tasks)))
            })
            .unzip();
        Self {
            router: Router::endless(workers, decode),
            shared,
            tasks,
            threads,
            parts: (0..workers).map(|_| Part::default()).collect(),
            chunk: Chunk::with_capacity(ROOM),
            frames: 0,
            last: At::default(),
            interfaces: Arc::default(),
        }
    }

    /// Takes a frame.
    #[inline]
    pub fn frame(&mut self, meta: &FrameMeta, record: &Record<'_>, interfaces: &[Interface], before: Before) {
        if interfaces.len() != self.interfaces.len() {
            self.send();
            self.interfaces = interfaces.into();
        }
        let Route { shard, datagram, pause } = self.router.route(meta, record.bytes);
        if let Some(pause) = pause {
            let others = self.parts.iter_mut().enumerate().filter(|(other, _)| *other != shard);
            others.for_each(|(_, part)| part.pauses.push_back((*meta, pause)));
        }
        let kept = (self.chunk.push(record), before);
        if let Some(part) = self.parts.get_mut(shard) {
            part.frames.push((*meta, kept));
            part.datagrams.extend(datagram.map(|datagram| (meta.number, datagram)));
        }
        self.last = meta.at();
        self.frames += 1;
        if self.frames >= BATCH || self.chunk.len() as u64 >= BATCH_BYTES {
            self.send();
        }
    }

    /// A TCP port on which a worker has seen an MPA handshake, and which was not told yet.
    #[inline]
    pub fn port(&self) -> Option<u16> {
        if !self.shared.has_ports.load(Ordering::Relaxed) {
            return None;
        }
        let mut ports = lock(&self.shared.ports);
        let port = ports.pop();
        self.shared.has_ports.store(!ports.is_empty(), Ordering::Relaxed);
        port
    }

    /// True if frames wait to be handed over.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.frames > 0
    }

    /// Hands over the frames that there are. Waits if a worker has enough to do.
    pub fn send(&mut self) {
        if std::mem::take(&mut self.frames) == 0 {
            return;
        }
        let empty = lock(&self.shared.chunks).pop().unwrap_or_else(|| Chunk::with_capacity(ROOM));
        let chunk = Arc::new(std::mem::replace(&mut self.chunk, empty));
        for (part, tasks) in self.parts.iter_mut().zip(&self.tasks) {
            if part.frames.is_empty() && part.pauses.is_empty() {
                continue;
            }
            let empty = lock(&self.shared.parts).pop().unwrap_or_default();
            let mut part = std::mem::replace(part, empty);
            (part.chunk, part.interfaces) = (chunk.clone(), self.interfaces.clone());
            // one that fell is seen in the end
            let _ = tasks.send(Task::Frames(part));
        }
        self.shared.let_go(chunk);
    }

    fn watermark(&mut self, expire_at: Option<i64>, standing: Option<mpsc::Sender<(usize, Standing)>>) {
        self.send();
        let watermark = Watermark { last: self.last, expire_at, standing };
        for tasks in &self.tasks {
            let _ = tasks.send(Task::Watermark(watermark.clone()));
        }
    }

    /// Drops connections that ended or are idle; with `hosts` also those hosts that were not heard of since the last time.
    pub fn expire(&mut self, now: i64, hosts: bool) {
        if hosts {
            self.router.age();
        }
        self.watermark(Some(now), None);
    }

    /// How things stand at the last frame.
    pub fn standing(&mut self) -> Standing {
        let (sender, standings) = mpsc::channel();
        self.watermark(None, Some(sender));
        let mut all: Vec<(usize, Standing)> = standings.iter().collect();
        all.sort_by_key(|(worker, _)| *worker);
        let mut all = all.into_iter().map(|(_, standing)| standing);
        let mut whole = all.next().unwrap_or_default();
        all.for_each(|standing| whole.join(standing));
        whole
    }

    /// The capture is over: the report of all. `None` if there is no worker.
    pub fn finish(mut self) -> Option<(Report, S)> {
        self.send();
        drop(self.tasks);
        let join = |worker: thread::JoinHandle<Pipeline<S>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let pipelines = self.threads.into_iter().map(join).collect();
        finish_endless(pipelines, &self.router)
    }
}

/// One of the threads.
struct Worker<S> {
    number: usize,
    follower: Follower<S>,
    shared: Arc<Shared>,
}

impl<S: Parts> Worker<S> {
    fn run(mut self, tasks: &mpsc::Receiver<Task>) -> Pipeline<S> {
        let mut interfaces = 0;
        while let Ok(task) = tasks.recv() {
            match task {
                Task::Frames(part) => self.follow(part, &mut interfaces),
                Task::Watermark(Watermark { last, expire_at, standing }) => {
                    let pipeline = &mut self.follower.pipeline;
                    pipeline.watermark(last);
                    if let Some(now) = expire_at {
                        expire(pipeline, now);
                    }
                    if let Some(standing) = standing {
                        let _ = standing.send((self.number, pipeline.standing()));
                    }
                }
            }
        }
        self.follower.pipeline
    }

    fn follow(&mut self, mut part: Part<Kept>, interfaces: &mut usize) {
        let Self { number, follower: Follower { pipeline, look }, shared } = self;
        pipeline.lost_elsewhere(shared.lost_but(*number));
        feed(pipeline, &mut part, interfaces, |pipeline, meta, (place, before), chunk, interfaces| {
            let packet = look.frame(pipeline, meta, &chunk.record(place), interfaces, *before);
            if let Some(port) = mpa_port(&packet.body) {
                let mut ports = lock(&shared.ports);
                if ports.len() < PORTS_MAX {
                    ports.push(port);
                    shared.has_ports.store(true, Ordering::Relaxed);
                }
            }
        });
        if let Some(lost) = shared.lost.get(*number) {
            lost.store(pipeline.lost(), Ordering::Relaxed);
        }
        shared.give_back(part);
    }
}
