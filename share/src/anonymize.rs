//! Frames in, frames out that say the same to an analysis and nothing about people, machines and files.

use crate::shape::Shape;
use crate::tally::{Options, Payload, Tally};
use crate::watch::{Blanker, Watch};
use rdmascope_analyzer::env;
use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
use rdmascope_dissector::frame::{self, Body, LinkType};
use rdmascope_dissector::trace::Off;

/// Bytes of frames that are held because a later frame may tell of them.
const HELD_BYTES: usize = 48 << 20;

/// A frame on its way in.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was captured, ns since the Unix epoch.
    pub time_ns: i64,
    /// Link type of the bytes.
    pub link_type: LinkType,
    /// Its length on the wire in bytes.
    pub wire_len: u32,
    /// Which interface of the capture it came from.
    pub interface: u32,
    /// Its captured bytes.
    pub bytes: &'a [u8],
}

/// Anonymizes a capture frame by frame. `M` is whatever the caller wants back with each frame.
pub struct Anonymizer<M> {
    pipeline: Pipeline,
    watch: Watch<M>,
    payload: Payload,
    frames: u64,
}

impl<M> Anonymizer<M> {
    /// At the beginning of a capture.
    pub fn new(options: Options) -> Self {
        Self::with_limit(options, HELD_BYTES)
    }

    /// The same, holding so many bytes of frames at most: a message whose pieces are farther apart is blanked.
    pub fn with_limit(options: Options, held_bytes: usize) -> Self {
        Self {
            pipeline: Pipeline::new(env::Options::default()),
            payload: options.payload,
            watch: Watch::new(options, held_bytes),
            frames: 0,
        }
    }

    /// The next frame; those that nothing can change any more go `out`, in their order.
    pub fn frame(&mut self, meta: M, frame: &Frame<'_>, mut out: impl FnMut(M, &[u8])) {
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
        // of several packets in one datagram, each has headers and a CRC of its own
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
        self.leave(false, &mut out);
    }

    fn leave(&mut self, at_the_end: bool, out: &mut impl FnMut(M, &[u8])) {
        let Watch { mapping, counts, window, .. } = &mut self.watch;
        let mut blanker = Blanker { mapping, payload: self.payload, blanked: &mut counts.blanked };
        window.leave(at_the_end, &mut blanker, out);
    }

    /// A name, as it is in the frames: for what is said beside them.
    pub fn name(&mut self, name: &str) -> String {
        self.watch.mapping.name(name)
    }

    /// The capture is over: the other frames, and what was done.
    pub fn finish(mut self, mut out: impl FnMut(M, &[u8])) -> Tally {
        self.leave(true, &mut out);
        self.watch.counts.tally(self.frames)
    }
}
