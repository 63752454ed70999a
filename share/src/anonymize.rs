//! Anonymizes frames: an analysis of the new frames gives the same result, and they identify no people, machines or
//! files.

use crate::batch::{Blanker, FrameBatch, NewFrames};
use crate::shape::Shape;
use crate::tally::{Options, Payload, Tally};
use crate::watch::Watch;
use crate::window::SPARE_MAX;
use rdmascope_analyzer::env;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_dissector::frame::{self, Body, LinkType};
use rdmascope_dissector::trace::Off;

/// Limit of the bytes of frames that are held because a later frame may identify parts of them.
const HELD_BYTES: usize = 48 << 20;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Capture time, ns since the Unix epoch.
    pub time_ns: i64,
    /// Link type of the bytes.
    pub link_type: LinkType,
    /// Length on the wire in bytes.
    pub wire_len: u32,
    /// Number of the interface in the capture.
    pub interface: u32,
    /// Captured bytes.
    pub bytes: &'a [u8],
}

/// Anonymizes a capture frame by frame. `M` is the caller's data for a frame, returned with it.
pub struct Anonymizer<M> {
    pipeline: Pipeline,
    watch: Watch<M>,
    payload: Payload,
    frames: u64,
    /// Emptied buffers, to be used again.
    spare: Vec<Vec<u8>>,
}

impl<M> Anonymizer<M> {
    /// An anonymizer for one capture.
    pub fn new(options: Options) -> Self {
        Self::with_limit(options, HELD_BYTES)
    }

    /// An anonymizer that holds at most `held_bytes` bytes of frames. A message whose pieces are farther apart is
    /// blanked.
    pub fn with_limit(options: Options, held_bytes: usize) -> Self {
        Self {
            pipeline: Pipeline::new(env::Options::default()),
            payload: options.payload,
            watch: Watch::new(options, held_bytes),
            frames: 0,
            spare: Vec::new(),
        }
    }

    /// Adds a frame. Passes all frames that cannot change any more to `out`, in order.
    pub fn frame(&mut self, meta: M, frame: &Frame<'_>, mut out: impl FnMut(M, &[u8])) {
        self.hold(meta, frame);
        self.pass(&mut out);
    }

    /// Adds a frame without passing any on: [`next_batch`](Self::next_batch) returns finished ones.
    pub fn hold(&mut self, meta: M, frame: &Frame<'_>) {
        self.frames += 1;
        let of_frame = FrameMeta {
            number: self.frames,
            time_ns: frame.time_ns,
            link_type: frame.link_type,
            wire_len: frame.wire_len,
            interface: frame.interface,
        };
        self.watch.begin(meta, frame.bytes);
        let options = self.pipeline.decode_options();
        let shape = Shape::of(frame.link_type, frame.bytes, frame.wire_len);
        let known = shape.filter(|shape| self.watch.knows(shape)).map(|shape| {
            let packet = frame::decode(frame.link_type, frame.bytes, frame.wire_len, &options, &mut Off);
            (shape, packet)
        });
        // several packets in one datagram: each has its own headers and CRC
        let known = known.filter(|(_, packet)| !matches!(&packet.body, Body::Ib(ib) if !ib.behind.is_empty()));
        let packet = match known {
            Some((shape, packet)) => {
                self.watch.recall(&shape, &packet);
                packet
            }
            None => {
                let before = self.watch.counts.replaced_so_far();
                let packet = frame::decode(frame.link_type, frame.bytes, frame.wire_len, &options, &mut self.watch);
                if let (Some(shape), Body::Ib(_) | Body::Tcp(_), None) = (shape, &packet.body, &packet.fault) {
                    self.watch.learn(shape, frame.bytes.len(), &before);
                }
                packet
            }
        };
        if let Body::Fragment(fragment) = &packet.body {
            self.watch.fragment(fragment.id, fragment.offset, fragment.payload);
        }
        self.pipeline.packet(&of_frame, &packet, &mut self.watch);
        self.watch.end_frame();
        self.close_oldest(false);
    }

    fn close_oldest(&mut self, at_the_end: bool) {
        let Watch { mapping, counts, window, .. } = &mut self.watch;
        let mut blanker = Blanker { stream: mapping.streams(), payload: self.payload, blanked: &mut counts.blanked };
        window.close_oldest(at_the_end, &mut blanker);
    }

    /// The next batch of frames that cannot change any more. Call it after each frame until it returns `None`: then the
    /// batches do not depend on the number of threads.
    pub fn next_batch(&mut self) -> Option<FrameBatch<M>> {
        let batch = self.watch.window.take()?;
        let made = self.spare.pop().unwrap_or_default();
        Some(FrameBatch::new(batch, self.watch.mapping.streams().clone(), self.payload, made))
    }

    /// Takes back a batch after its frames were written, and adds up what was blanked in it.
    pub fn give_back(&mut self, made: NewFrames<M>) {
        self.watch.counts.blanked.join(&made.blanked);
        let (batch, bytes) = made.empty();
        self.watch.window.give_back(batch);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    fn pass(&mut self, out: &mut impl FnMut(M, &[u8])) {
        while let Some(batch) = self.next_batch() {
            let mut made = batch.make();
            made.frames(&mut *out);
            self.give_back(made);
        }
    }

    /// The replacement of a name as it is used in the frames, for texts beside them.
    pub fn name(&mut self, name: &str) -> String {
        self.watch.mapping.name(name)
    }

    /// Ends the capture: passes on the other frames, and returns the counts.
    pub fn finish(mut self, mut out: impl FnMut(M, &[u8])) -> Tally {
        self.end();
        self.pass(&mut out);
        self.tally()
    }

    /// Ends the capture. [`next_batch`](Self::next_batch) returns all other frames.
    pub fn end(&mut self) {
        self.close_oldest(true);
    }

    /// The counts, after all batches were given back.
    pub fn tally(self) -> Tally {
        self.watch.counts.tally(self.frames)
    }
}
