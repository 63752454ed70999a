//! Frames in, frames out that say the same to an analysis and nothing about people, machines and files.

use crate::parcel::{Blanker, Made, Parcel};
use crate::shape::Shape;
use crate::tally::{Options, Payload, Tally};
use crate::watch::Watch;
use crate::window::SPARE_MAX;
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
    /// Buffers to be filled again.
    spare: Vec<Vec<u8>>,
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
            spare: Vec::new(),
        }
    }

    /// The next frame; those that nothing can change any more go `out`, in their order.
    pub fn frame(&mut self, meta: M, frame: &Frame<'_>, mut out: impl FnMut(M, &[u8])) {
        self.hold(meta, frame);
        self.pass(&mut out);
    }

    /// The same for who makes the new frames elsewhere: they go out as parcels.
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
        self.leave(false);
    }

    fn leave(&mut self, at_the_end: bool) {
        let Watch { mapping, counts, window, .. } = &mut self.watch;
        let mut blanker = Blanker { stream: mapping.streams(), payload: self.payload, blanked: &mut counts.blanked };
        window.leave(at_the_end, &mut blanker);
    }

    /// Frames that nothing can change any more. Asked for after each frame until there are none, parcels are the same whoever makes them.
    pub fn parcel(&mut self) -> Option<Parcel<M>> {
        let shelf = self.watch.window.take()?;
        let made = self.spare.pop().unwrap_or_default();
        Some(Parcel::new(shelf, self.watch.mapping.streams().clone(), self.payload, made))
    }

    /// Takes back a parcel whose frames went out, for what was blanked in it.
    pub fn give_back(&mut self, made: Made<M>) {
        self.watch.counts.blanked.join(&made.blanked);
        let (shelf, bytes) = made.empty();
        self.watch.window.give_back(shelf);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    fn pass(&mut self, out: &mut impl FnMut(M, &[u8])) {
        while let Some(parcel) = self.parcel() {
            let mut made = parcel.make();
            made.frames(&mut *out);
            self.give_back(made);
        }
    }

    /// A name, as it is in the frames: for what is said beside them.
    pub fn name(&mut self, name: &str) -> String {
        self.watch.mapping.name(name)
    }

    /// The capture is over: the other frames, and what was done.
    pub fn finish(mut self, mut out: impl FnMut(M, &[u8])) -> Tally {
        self.end();
        self.pass(&mut out);
        self.tally()
    }

    /// The capture is over, for who makes the new frames elsewhere: all of them are in the parcels that follow.
    pub fn end(&mut self) {
        self.leave(true);
    }

    /// What was done, once all parcels were given back.
    pub fn tally(self) -> Tally {
        self.watch.counts.tally(self.frames)
    }
}
