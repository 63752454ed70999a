//! FPDUs in the ordered bytes of one direction of a TCP connection: RFC 5044. On any port; the content decides.
//!
//! ```text
//!          key at the start                 Request or Reply whole
//! Opening ─────────────────▶ (collects) ──────────────────────────▶ Framing ◀─┐ several FPDUs chain
//!    │ no key                                                        │ gap,    │
//!    └──▶ Search (only at the start: anchored) ──▶ Other             └─ nonsense ─▶ Search
//! late start ──▶ Search ──▶ Framing, or Other when nothing chains
//! ```
//!
//! An FPDU that lies in one piece is passed on without a copy; others are put together in a buffer that is used again.
//! Markers are taken out on the way, the CRC being computed over them. The receiver asks for them (4.3): where that was
//! not captured, they are looked for in FPDUs whose CRC is wrong.

use super::tcp::Piece;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rdmascope_dissector::frame::Check;
use rdmascope_dissector::wire::iwarp::mpa::{self, CRC_LEN, Crc, MARKER_INTERVAL, MARKER_LEN, Opening, fpdu_len};
use rdmascope_dissector::wire::iwarp::rdmap::Opcode;

/// Verdict on a connection: MPA or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recognition {
    /// Not decided yet.
    #[default]
    Undecided,
    /// The stream is MPA.
    Mpa,
    /// It is something else: its bytes are reported as they are.
    NotMpa,
}

/// Evidence for the framing of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// From the MPA Request or Reply.
    Handshake,
    /// Found in mid-stream, with a CRC that is right.
    Crc,
    /// Found in mid-stream by the shape of DDP headers that chain.
    Shape,
}

/// Events of a [`Framer`].
#[derive(Debug)]
pub enum Framed<'a> {
    /// An MPA Request or Reply, whole.
    Startup {
        /// Its bytes.
        bytes: &'a [u8],
        /// True if they are part of the current frame, and not of a buffer.
        in_frame: bool,
    },
    /// An FPDU without markers.
    Fpdu {
        /// The bytes of it that are present, from its length field on.
        bytes: &'a [u8],
        /// True if the bytes are part of the current frame, and not of a buffer.
        in_frame: bool,
        /// Its CRC.
        crc: Crc,
    },
    /// Part of an FPDU or Request, kept until the rest comes.
    Part {
        /// Bytes kept so far.
        have: u32,
        /// Bytes of the whole, if known.
        total: Option<u32>,
    },
    /// A marker that does not point to the header of its FPDU.
    MarkerBad {
        /// Its pointer.
        pointer: u16,
        /// The pointer that would be right.
        expected: u16,
    },
    /// Framing was lost, and is found again (or for the first time) after `skipped` bytes.
    Resync {
        /// Bytes that could not be read.
        skipped: u32,
        /// Evidence for the framing found.
        found: Evidence,
    },
    /// Bytes of a stream that is not MPA.
    Other(Piece<'a>),
}

/// Bytes in which framing is looked for, at most. Enough for two FPDUs of the largest size.
const SEARCH_MAX: usize = 192 * 1024;
/// Places of the search that are followed at once.
const CANDIDATES_MAX: usize = 32;
/// A buffer larger than this is given back when it is empty.
const KEEP_CAPACITY: usize = 16 * 1024;
/// Bytes of an FPDU that its shape is known from: length, DDP header.
const SHAPE_LEN: usize = 2 + 18;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Opening,
    Search,
    Framing,
    Other,
}

/// Use of CRCs by the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CrcUse {
    #[default]
    Unknown,
    On,
    Off,
}

/// Framing of one direction.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    phase: Phase,
    crc: CrcUse,
    markers: bool,
    /// It is known if there are markers.
    markers_known: bool,
    /// The connection is known to be MPA: the search is content with less, and never gives up.
    known: bool,
    /// The first byte seen need not be the first of the stream.
    late: bool,
    /// An FPDU was reported: none without a ULPDU follows.
    begun: bool,
    found: Option<Evidence>,
    /// Bytes of the FPDU, Request or search that wait for more; markers are not among them.
    buf: Vec<u8>,
    /// Bytes of the current FPDU that went by, also those that are missing from `buf`.
    have: u32,
    /// Nothing more goes into `buf`: there is a hole.
    holed: bool,
    /// Markers: bytes since the first marker.
    position: u32,
    /// Markers: position of the length field of the current FPDU.
    header_at: u32,
    /// Markers: the bytes of the marker that is coming in.
    marker: [u8; MARKER_LEN],
    /// Markers: number of these bytes.
    marker_have: u8,
    /// Markers: the CRC so far, of the FPDU and the markers before and in it; `None` if bytes of it were missed.
    sum: Option<u32>,
    /// CRCs that were wrong while the use of CRCs was unknown.
    wrong_while_unknown: u8,
    skipped: u32,
    /// Bytes of the current segment that a decoding thread found to be a run of FPDUs with correct CRCs: the addresses
    /// of the next of them and of their end. Bytes that were kept have other addresses and are checked here.
    verified: (usize, usize),
    search: Option<Box<Search>>,
}

impl Framer {
    /// The first `length` bytes of the segment that comes next are a run of FPDUs, without markers, with right CRCs.
    #[inline]
    pub fn mark_verified(&mut self, payload: &[u8], length: u32) {
        let start = payload.as_ptr() as usize;
        self.verified = (start, start + payload.len().min(length as usize));
    }

    /// True if this FPDU is the next of those that are already checked.
    #[inline]
    fn is_verified(&mut self, fpdu: &[u8]) -> bool {
        let (next, end) = self.verified;
        if next >= end || fpdu.as_ptr() as usize != next || end - next < fpdu.len() {
            return false;
        }
        self.verified.0 += fpdu.len();
        true
    }

    /// Verdict so far: MPA or not.
    pub fn verdict(&self) -> Recognition {
        match self.phase {
            Phase::Framing => Recognition::Mpa,
            Phase::Other => Recognition::NotMpa,
            _ if self.known => Recognition::Mpa,
            _ => Recognition::Undecided,
        }
    }

    /// True while the framing is lost and searched for.
    pub fn is_lost(&self) -> bool {
        self.is_searching() && self.found.is_some()
    }

    /// True while the framing is searched for: of bytes that are missing meanwhile nothing will be read.
    pub fn is_searching(&self) -> bool {
        self.phase == Phase::Search
    }

    /// Evidence for the framing; `None` as long as it is not known.
    pub fn found(&self) -> Option<Evidence> {
        self.found
    }

    /// Bytes of memory besides its own size.
    pub fn memory(&self) -> usize {
        self.buf.capacity()
            + self.search.as_ref().map_or(0, |s| size_of::<Search>() + s.candidates.capacity() * size_of::<Candidate>())
    }

    /// Gives back memory that is not needed while nothing is held.
    pub fn trim(&mut self) {
        if self.buf.is_empty() {
            self.buf = Vec::new();
        }
    }

    /// The stream begins late: it need not begin with a Request or an FPDU.
    pub fn late(&mut self) {
        self.late = true;
    }

    /// The connection is MPA; CRCs and markers as agreed, if known.
    pub fn agree(&mut self, crc: Option<bool>, markers: Option<bool>) {
        self.known = true;
        match crc {
            Some(true) => self.crc = CrcUse::On,
            Some(false) => self.crc = CrcUse::Off,
            None => {}
        }
        if let Some(markers) = markers {
            (self.markers, self.markers_known) = (markers, true);
        }
        if let Some(search) = &mut self.search {
            search.anchored = false;
        }
    }

    /// The connection is not MPA: reports the kept bytes, and all that follow.
    pub fn give_up(&mut self, emit: &mut impl FnMut(Framed<'_>)) {
        if self.phase == Phase::Other {
            return;
        }
        self.phase = Phase::Other;
        self.search = None;
        let buf = core::mem::take(&mut self.buf);
        // what was passed over in the search is not known any more
        let missing = core::mem::take(&mut self.skipped);
        if missing > 0 {
            emit(Framed::Other(Piece { bytes: &[], missing, in_frame: false }));
        }
        if !buf.is_empty() {
            emit(Framed::Other(Piece { bytes: &buf, missing: 0, in_frame: false }));
        }
    }

    /// Takes the next piece of the stream. `check`: verify CRCs. Returns the rest of the piece behind an MPA Request or
    /// Reply: the caller reads that one first, and passes the rest again.
    #[inline]
    pub fn push<'a>(&mut self, piece: Piece<'a>, check: bool, emit: &mut impl FnMut(Framed<'_>)) -> Option<Piece<'a>> {
        if self.phase == Phase::Opening {
            return self.open(piece, check, emit);
        }
        self.run(piece, check, emit);
        None
    }

    /// Frames and searches in turn, until the piece is used up.
    #[inline]
    fn run(&mut self, mut piece: Piece<'_>, check: bool, emit: &mut impl FnMut(Framed<'_>)) {
        loop {
            match self.phase {
                Phase::Framing if self.markers => return self.frame_marked(piece, check, emit),
                Phase::Framing => {
                    let Some(rest) = self.frame(piece, check, emit) else { return };
                    if !self.markers {
                        self.begin_search(false);
                    }
                    piece = rest;
                }
                Phase::Search => {
                    let Some(rest) = self.look(piece, check, emit) else { return };
                    piece = rest;
                }
                Phase::Opening | Phase::Other => return emit(Framed::Other(piece)),
            }
        }
    }

    fn open<'a>(&mut self, piece: Piece<'a>, check: bool, emit: &mut impl FnMut(Framed<'_>)) -> Option<Piece<'a>> {
        let kept = self.buf.len();
        let opening = if kept == 0 {
            mpa::opening(piece.bytes)
        } else {
            self.buf.extend_from_slice(piece.bytes);
            mpa::opening(&self.buf)
        };
        let there = kept + piece.bytes.len();
        match opening {
            Opening::Startup { length, .. } if there >= length => {
                self.phase = Phase::Framing;
                self.found = Some(Evidence::Handshake);
                self.known = true;
                self.position = 0;
                self.sum = Some(0);
                if kept == 0 {
                    emit(Framed::Startup { bytes: &piece.bytes[..length], in_frame: piece.in_frame });
                } else {
                    emit(Framed::Startup { bytes: &self.buf[..length], in_frame: false });
                    self.clear();
                }
                let rest = Piece { bytes: &piece.bytes[length - kept..], ..piece };
                return (!rest.bytes.is_empty() || rest.missing > 0).then_some(rest);
            }
            Opening::Startup { .. } | Opening::Short if piece.missing == 0 => {
                if kept == 0 {
                    self.buf.extend_from_slice(piece.bytes);
                }
                let total = if let Opening::Startup { length, .. } = opening { Some(length as u32) } else { None };
                emit(Framed::Part { have: there as u32, total });
            }
            _ => {
                // no Request: FPDUs from the first byte on (the handshake was not captured), or something else
                let bytes = core::mem::take(&mut self.buf);
                self.begin_search(!self.known && !self.late && !piece.bytes.is_empty());
                if kept == 0 {
                    self.run(piece, check, emit);
                } else {
                    self.run(Piece { bytes: &bytes, missing: piece.missing, in_frame: false }, check, emit);
                }
            }
        }
        None
    }

    fn begin_search(&mut self, anchored: bool) {
        self.phase = Phase::Search;
        self.have = 0;
        self.holed = false;
        self.search = Some(Box::new(Search { anchored, ..Search::default() }));
    }

    fn clear(&mut self) {
        if self.buf.capacity() > KEEP_CAPACITY {
            self.buf = Vec::new();
        } else {
            self.buf.clear();
        }
    }

    /// Takes one FPDU after the other while the framing is known. Returns the bytes from which on it is not, or from
    /// which on there are markers.
    #[inline]
    fn frame<'a>(&mut self, piece: Piece<'a>, check: bool, emit: &mut impl FnMut(Framed<'_>)) -> Option<Piece<'a>> {
        let mut bytes = piece.bytes;
        if self.have > 0 {
            let short = self.have < 4;
            bytes = self.fill(bytes, check, emit);
            if short && self.have >= 4 && !self.holed && !self.fits(&self.buf) {
                return Some(Piece { bytes, ..piece });
            }
        }
        while let Some((length, _)) = bytes.split_first_chunk::<2>() {
            let length = u16::from_be_bytes(*length);
            let total = fpdu_len(length);
            if bytes.len() < total {
                break;
            }
            let (fpdu, rest) = bytes.split_at(total);
            let before = self.crc;
            let crc = self.check_crc(fpdu, check);
            if crc != Crc::Used(Check::Good) && check && before != CrcUse::Off && self.find_markers(bytes) {
                return Some(Piece { bytes, ..piece });
            }
            if crc != Crc::Used(Check::Good) && !self.fits(fpdu) && !plausible(rest) {
                // neither here nor behind it is an FPDU
                return Some(Piece { bytes, ..piece });
            }
            emit(Framed::Fpdu { bytes: fpdu, in_frame: piece.in_frame, crc });
            self.begun = true;
            bytes = rest;
        }
        if bytes.is_empty() && piece.missing == 0 && self.have == 0 {
            return None;
        }
        self.keep(Piece { bytes, ..piece }, check, emit)
    }

    /// Looks for markers in the first FPDU of these bytes, whose CRC is wrong without, if it is not known that there are
    /// none. Markers stand 512 bytes apart, anywhere in an FPDU, and say how far behind its length field: the CRC over
    /// them shows that they are markers.
    #[cold]
    fn find_markers(&mut self, bytes: &[u8]) -> bool {
        /// Places that look like a marker of which the CRC is computed, at most.
        const TRIES_MAX: usize = 4;
        if self.markers_known {
            return false;
        }
        let first = bytes.chunks_exact(MARKER_LEN).take(MARKER_INTERVAL as usize / MARKER_LEN).enumerate();
        let is_like_one = |(n, word): &(usize, &[u8])| {
            let at = n * MARKER_LEN;
            **word == (at as u32).to_be_bytes()
        };
        for (n, _) in first.filter(is_like_one).take(TRIES_MAX) {
            let at = n * MARKER_LEN;
            // the length field is behind a marker at the beginning
            let header = &bytes[if at == 0 { MARKER_LEN } else { 0 }..];
            let Some((length, _)) = header.split_first_chunk::<2>() else { continue };
            let total = fpdu_len(u16::from_be_bytes(*length));
            let longest = total + (total / (MARKER_INTERVAL as usize - MARKER_LEN) + 2) * MARKER_LEN;
            let marked = Self {
                phase: Phase::Framing,
                crc: CrcUse::On,
                markers: true,
                markers_known: true,
                known: true,
                begun: self.begun,
                position: MARKER_INTERVAL - at as u32,
                header_at: MARKER_INTERVAL - at as u32,
                sum: Some(0),
                ..Self::default()
            };
            let (mut first, mut is_right) = (None, true);
            let piece = Piece { bytes: &bytes[..bytes.len().min(longest)], missing: 0, in_frame: false };
            marked.clone().frame_marked(piece, true, &mut |framed| match framed {
                Framed::Fpdu { crc, .. } => _ = first.get_or_insert(crc),
                Framed::MarkerBad { .. } => is_right &= first.is_some(),
                _ => {}
            });
            if first == Some(Crc::Used(Check::Good)) && is_right {
                let Self { crc, markers, markers_known, position, header_at, sum, .. } = marked;
                (self.crc, self.markers, self.markers_known) = (crc, markers, markers_known);
                (self.position, self.header_at, self.sum) = (position, header_at, sum);
                (self.marker_have, self.have, self.holed) = (0, 0, false);
                return true;
            }
        }
        false
    }

    /// Adds to the FPDU that is being put together. Returns the bytes behind it.
    fn fill<'a>(&mut self, mut bytes: &'a [u8], check: bool, emit: &mut impl FnMut(Framed<'_>)) -> &'a [u8] {
        loop {
            let total = if self.have < 2 { 2 } else { self.total() };
            let n = bytes.len().min((total - self.have) as usize);
            let (new, rest) = bytes.split_at(n);
            if !self.holed {
                self.buf.extend_from_slice(new);
            }
            (self.have, bytes) = (self.have + n as u32, rest);
            if self.have >= 2 && self.have == self.total() {
                self.complete(check, emit);
                return bytes;
            }
            if bytes.is_empty() {
                return bytes;
            }
        }
    }

    /// True if this can be an FPDU: by its header, or as the first of its direction, which may be empty (RFC 6581 9.4).
    #[inline]
    fn fits(&self, fpdu: &[u8]) -> bool {
        plausible(fpdu) || (!self.begun && fpdu.starts_with(&[0, 0]))
    }

    /// Length of the FPDU whose length field is in `buf`.
    fn total(&self) -> u32 {
        fpdu_len(u16::from_be_bytes([self.buf[0], self.buf[1]])) as u32
    }

    /// The FPDU in `buf` has ended, perhaps with a hole.
    fn complete(&mut self, check: bool, emit: &mut impl FnMut(Framed<'_>)) {
        let buf = core::mem::take(&mut self.buf);
        let crc = match (self.holed, self.markers) {
            (true, _) => self.unchecked(),
            (false, false) => self.check_crc(&buf, check),
            (false, true) => match (self.crc, self.sum, buf.last_chunk::<CRC_LEN>()) {
                (CrcUse::Off, ..) => Crc::Unused,
                (_, Some(sum), Some(field)) if check => self.learn_crc_use(sum == u32::from_le_bytes(*field), *field),
                _ => self.unchecked(),
            },
        };
        emit(Framed::Fpdu { bytes: &buf, in_frame: false, crc });
        self.begun = true;
        self.buf = buf;
        self.clear();
        self.have = 0;
        self.holed = false;
        self.sum = Some(0);
    }

    fn unchecked(&self) -> Crc {
        if self.crc == CrcUse::On { Crc::Used(Check::Unchecked) } else { Crc::Unused }
    }

    /// The CRC of a whole FPDU.
    #[inline]
    fn check_crc(&mut self, fpdu: &[u8], check: bool) -> Crc {
        match self.crc {
            CrcUse::Off => Crc::Unused,
            _ if !check => self.unchecked(),
            CrcUse::On => Crc::Used(if self.is_verified(fpdu) { Check::Good } else { mpa::check(fpdu) }),
            CrcUse::Unknown => {
                let good = self.is_verified(fpdu) || mpa::check(fpdu) == Check::Good;
                self.learn_crc_use(good, *fpdu.last_chunk().unwrap_or(&[0; 4]))
            }
        }
    }

    /// Learns from a CRC if CRCs are used, as long as that is not known.
    fn learn_crc_use(&mut self, good: bool, field: [u8; 4]) -> Crc {
        if self.crc == CrcUse::Unknown {
            if good {
                self.crc = CrcUse::On;
            } else {
                self.wrong_while_unknown += 1;
                if field == [0; 4] || self.wrong_while_unknown > 2 {
                    self.crc = CrcUse::Off;
                }
                return Crc::Unused;
            }
        }
        Crc::Used(if good { Check::Good } else { Check::Bad })
    }

    /// Keeps the beginning of an FPDU, or reports it as cut if the rest will not come. Returns the bytes at which the
    /// framing is lost.
    fn keep<'a>(&mut self, piece: Piece<'a>, check: bool, emit: &mut impl FnMut(Framed<'_>)) -> Option<Piece<'a>> {
        let Piece { bytes, missing, in_frame } = piece;
        if missing == 0 {
            if self.have == 0 {
                if !self.fits(bytes) {
                    return Some(piece);
                }
                self.buf.extend_from_slice(bytes);
                self.have = bytes.len() as u32;
            }
            let total = (self.have >= 2).then(|| self.total());
            emit(Framed::Part { have: self.have, total });
            return None;
        }
        let lost = |missing: u32| (missing > 0).then_some(Piece { bytes: &[], missing, in_frame: false });
        if self.have == 0 {
            let Some((length, _)) = bytes.split_first_chunk::<2>() else { return Some(piece) };
            if !self.fits(bytes) {
                return Some(piece);
            }
            let (there, total) = (bytes.len() as u32, fpdu_len(u16::from_be_bytes(*length)) as u32);
            if there.saturating_add(missing) < total {
                // a hole, and the FPDU goes on behind it
                self.buf.extend_from_slice(bytes);
                (self.have, self.holed) = (there + missing, true);
                return None;
            }
            emit(Framed::Fpdu { bytes, in_frame, crc: self.unchecked() });
            return lost(missing - (total - there));
        }
        // all bytes of the piece are in the FPDU that is being put together, and it is not complete
        if self.have < 2 {
            self.skipped += self.have;
            self.clear();
            return lost(missing);
        }
        let left = self.total() - self.have;
        self.holed = true;
        if missing < left {
            self.have += missing;
            return None;
        }
        self.have += left;
        self.complete(check, emit);
        lost(missing - left)
    }

    /// Looks for FPDUs that chain. Returns the framed part of the piece, if only the piece was searched.
    fn look<'a>(&mut self, piece: Piece<'a>, check: bool, emit: &mut impl FnMut(Framed<'_>)) -> Option<Piece<'a>> {
        let mut search = self.search.take()?;
        let kept = self.buf.len();
        if self.markers {
            self.strip_into_search(piece.bytes);
            self.position = self.position.wrapping_add(piece.missing);
            self.marker_have = marker_part(self.position);
        } else if kept > 0 {
            self.buf.extend_from_slice(piece.bytes);
        }
        let in_place = kept == 0 && !self.markers;
        let hay = if in_place { piece.bytes } else { &self.buf[..] };
        let mut terms = Terms {
            known: self.known,
            crc: if check && !self.markers { self.crc } else { CrcUse::Off },
            budget: 4 * hay.len() + 64 * 1024,
        };
        if let Some((start, found)) = search.look(hay, kept, &mut terms) {
            self.phase = Phase::Framing;
            self.known = true;
            self.found = Some(self.found.map_or(found, |f| f.max(found)));
            let skipped = self.skipped.saturating_add(start as u32);
            self.skipped = 0;
            emit(Framed::Resync { skipped, found });
            if in_place {
                return Some(Piece { bytes: &piece.bytes[start..], ..piece });
            }
            let buf = core::mem::take(&mut self.buf);
            let rest = Piece { bytes: &buf[start..], missing: piece.missing, in_frame: false };
            if self.markers {
                self.frame_stripped(rest, check, emit);
            } else {
                // once: with nothing buffered, the search goes on in place
                self.run(rest, check, emit);
            }
            return None;
        }
        let hay_len = hay.len();
        let hopeless = !self.known
            && (search.failed || hay_len > SEARCH_MAX || is_something_else(&piece.bytes[..piece.bytes.len().min(20)]));
        if hopeless {
            if in_place {
                self.phase = Phase::Other;
                emit(Framed::Other(piece));
                return None;
            }
            self.give_up(emit);
            if piece.missing > 0 {
                emit(Framed::Other(Piece { bytes: &[], missing: piece.missing, in_frame: false }));
            }
            return None;
        }
        if piece.missing > 0 || hay_len > SEARCH_MAX {
            // earlier bytes cannot be chained to later ones
            self.skipped = self.skipped.saturating_add(hay_len as u32).saturating_add(piece.missing);
            self.clear();
            *search = Search::default();
        } else {
            if in_place {
                self.buf.extend_from_slice(piece.bytes);
            }
            if !piece.bytes.is_empty() {
                emit(Framed::Part { have: hay_len as u32, total: None });
            }
        }
        self.search = Some(search);
        None
    }

    /// Framing is known, and there are markers in the stream.
    fn frame_marked(&mut self, piece: Piece<'_>, check: bool, emit: &mut impl FnMut(Framed<'_>)) {
        let mut bytes = piece.bytes;
        while !bytes.is_empty() {
            let phase = self.position % MARKER_INTERVAL;
            if (phase as usize) < MARKER_LEN {
                bytes = self.take_marker(bytes, emit);
                continue;
            }
            if self.have == 0 {
                self.header_at = self.position;
            }
            let total = if self.have < 2 { 2 } else { self.total() };
            // up to the next marker, the end, or the CRC, which is not part of its own sum
            let mut n = bytes.len().min((MARKER_INTERVAL - phase) as usize).min((total - self.have) as usize);
            let body = total - CRC_LEN.min(total as usize) as u32;
            if self.have >= 2 && self.have < body {
                n = n.min((body - self.have) as usize);
            }
            let (new, rest) = bytes.split_at(n);
            if self.have < 2 || self.have < body {
                self.sum = self.sum.map(|sum| mpa::crc_append(sum, new));
            }
            if !self.holed {
                self.buf.extend_from_slice(new);
            }
            (self.have, self.position, bytes) = (self.have + n as u32, self.position.wrapping_add(n as u32), rest);
            if self.have >= 2 && self.have == self.total() {
                if !self.fits(&self.buf) && !plausible(bytes) {
                    // `buf` has no FPDU: it is searched, with the bytes that follow
                    self.begin_search(false);
                    self.look(Piece { bytes, ..piece }, check, emit);
                    return;
                }
                self.complete(check, emit);
            }
        }
        if piece.missing == 0 {
            if self.have > 0 {
                let total = (self.have >= 2).then(|| self.total());
                emit(Framed::Part { have: self.have, total });
            }
            return;
        }
        self.skip_marked(piece.missing, check, emit);
    }

    /// Takes the next bytes of the marker that stands here.
    fn take_marker<'a>(&mut self, bytes: &'a [u8], emit: &mut impl FnMut(Framed<'_>)) -> &'a [u8] {
        let at = usize::from(self.marker_have);
        let n = bytes.len().min(MARKER_LEN - at);
        let (new, rest) = bytes.split_at(n);
        self.marker[at..at + n].copy_from_slice(new);
        self.marker_have += n as u8;
        self.position = self.position.wrapping_add(n as u32);
        self.sum = self.sum.map(|sum| mpa::crc_append(sum, new));
        if usize::from(self.marker_have) == MARKER_LEN {
            self.marker_have = 0;
            let pointer = u16::from_be_bytes([self.marker[2], self.marker[3]]);
            let start = self.position.wrapping_sub(MARKER_LEN as u32);
            let expected = if self.have == 0 { 0 } else { start.wrapping_sub(self.header_at) as u16 };
            if pointer != expected && self.phase == Phase::Framing {
                emit(Framed::MarkerBad { pointer, expected });
            }
        }
        rest
    }

    /// Bytes are missing from a stream with markers.
    fn skip_marked(&mut self, missing: u32, check: bool, emit: &mut impl FnMut(Framed<'_>)) {
        self.sum = None;
        let mut left = missing;
        while left > 0 && self.have >= 2 && self.have < self.total() {
            self.holed = true;
            let phase = self.position % MARKER_INTERVAL;
            let n = if (phase as usize) < MARKER_LEN {
                left.min(MARKER_LEN as u32 - phase)
            } else {
                let n = left.min(MARKER_INTERVAL - phase).min(self.total() - self.have);
                self.have += n;
                n
            };
            (self.position, left) = (self.position.wrapping_add(n), left - n);
        }
        self.marker_have = marker_part(self.position);
        if self.have >= 2 && self.have == self.total() {
            self.complete(check, emit);
        }
        if left == 0 {
            return;
        }
        self.skipped = self.skipped.saturating_add(self.have + left);
        self.clear();
        self.position = self.position.wrapping_add(left);
        self.marker_have = marker_part(self.position);
        self.begin_search(false);
    }

    fn strip_into_search(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let phase = self.position % MARKER_INTERVAL;
            if (phase as usize) < MARKER_LEN {
                bytes = self.take_marker(bytes, &mut |_| {});
                continue;
            }
            let (new, rest) = bytes.split_at(bytes.len().min((MARKER_INTERVAL - phase) as usize));
            self.buf.extend_from_slice(new);
            (self.position, bytes) = (self.position.wrapping_add(new.len() as u32), rest);
        }
    }

    /// FPDUs whose markers are out already. Their CRCs cannot be checked.
    fn frame_stripped(&mut self, piece: Piece<'_>, check: bool, emit: &mut impl FnMut(Framed<'_>)) {
        let mut bytes = piece.bytes;
        while let Some((length, _)) = bytes.split_first_chunk::<2>() {
            let total = fpdu_len(u16::from_be_bytes(*length));
            let Some((fpdu, rest)) = bytes.split_at_checked(total) else { break };
            emit(Framed::Fpdu { bytes: fpdu, in_frame: false, crc: self.unchecked() });
            bytes = rest;
        }
        self.buf.extend_from_slice(bytes);
        self.have = bytes.len() as u32;
        self.holed = false;
        // searched bytes have no sum; a marker before the next FPDU is part of its sum
        let behind_marker = self.position % MARKER_INTERVAL <= MARKER_LEN as u32;
        self.sum = (bytes.is_empty() && !behind_marker).then_some(0);
        // an estimate, right if there is no marker between
        self.header_at = self.position.wrapping_sub(self.have);
        if piece.missing > 0 {
            self.position = self.position.wrapping_sub(piece.missing);
            self.skip_marked(piece.missing, check, emit);
        }
    }
}

/// Bytes of the marker in which this position lies that stand before it.
fn marker_part(position: u32) -> u8 {
    (position % MARKER_INTERVAL).min(MARKER_LEN as u32) as u8 % MARKER_LEN as u8
}

/// True if these can be the first bytes of an FPDU, as many as there are.
#[inline]
pub(super) fn plausible(fpdu: &[u8]) -> bool {
    match *fpdu {
        // DDP version 1, RDMAP version 0 or 1, an opcode that is defined
        [_, _, ddp, rdmap, ..] => ddp & 0x3f == 0x01 && rdmap & 0xb0 == 0 && rdmap & 0xf <= 0xb,
        [_, _, ddp] => ddp & 0x3f == 0x01,
        _ => true,
    }
}

/// SMB over TCP or RPC over TCP at the start of a segment: no FPDU looks like them.
fn is_something_else(b: &[u8]) -> bool {
    match *b {
        [0, _, _, _, 0xfc..=0xff, b'S', b'M', b'B', ..] => true,
        // a record mark, an RPC call of version 2 or a reply
        [mark, _, _, _, _, _, _, _, 0, 0, 0, 0, 0, 0, 0, 2, ..] => mark & 0x80 != 0,
        [mark, _, _, _, _, _, _, _, 0, 0, 0, 1, 0, 0, 0, 0 | 1, ..] => mark & 0x80 != 0,
        _ => false,
    }
}

/// Knowledge and limits that a search relies on.
#[derive(Clone, Debug)]
struct Terms {
    known: bool,
    crc: CrcUse,
    /// Bytes whose CRC may be computed: the cost of a search is linear in the bytes searched.
    budget: usize,
}

/// The search for framing in mid-stream.
#[derive(Clone, Debug, Default)]
struct Search {
    /// Only the first byte may begin an FPDU.
    anchored: bool,
    /// It cannot succeed any more.
    failed: bool,
    /// Offset at which the next candidate may begin.
    scan: usize,
    candidates: Vec<Candidate>,
}

/// A place where FPDUs may begin, and the state of their chain.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    start: usize,
    next: usize,
    score: u32,
    fpdus: u32,
    crc_good: bool,
    /// True if the header at `next` was counted.
    counted: bool,
    /// STag and offset at which a tagged message would go on.
    tagged: Option<(u32, u64)>,
}

/// Known facts about a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Dead,
    Claimed,
}

impl Search {
    /// Searches `hay`, of which the first `old` bytes were seen before. Returns the offset at which framing begins, if
    /// there is one.
    fn look(&mut self, hay: &[u8], old: usize, terms: &mut Terms) -> Option<(usize, Evidence)> {
        let mut claim = None;
        self.candidates.retain_mut(|c| match if claim.is_some() { Fate::Open } else { c.follow(hay, terms) } {
            Fate::Open => true,
            Fate::Dead => false,
            Fate::Claimed => {
                claim = Some(*c);
                true
            }
        });
        while claim.is_none() && self.scan + SHAPE_LEN <= hay.len() && self.candidates.len() < CANDIDATES_MAX {
            let start = self.scan;
            self.scan += 1;
            if self.anchored && start > 0 {
                break;
            }
            if shape(&hay[start..]).is_none() {
                continue;
            }
            // senders try to begin segments with an FPDU
            let score = u32::from(start == old);
            let mut c =
                Candidate { start, next: start, score, fpdus: 0, crc_good: false, counted: false, tagged: None };
            match c.follow(hay, terms) {
                Fate::Claimed => claim = Some(c),
                Fate::Open => self.candidates.push(c),
                Fate::Dead => {}
            }
        }
        self.failed = self.anchored && self.scan > 0 && self.candidates.is_empty();
        claim.map(|c| (c.start, if c.crc_good { Evidence::Crc } else { Evidence::Shape }))
    }
}

impl Candidate {
    /// Follows the chain as far as the bytes go.
    fn follow(&mut self, hay: &[u8], terms: &mut Terms) -> Fate {
        let enough = if terms.known { 3 } else { 5 };
        loop {
            let Some(rest) = hay.get(self.next..) else { return Fate::Open };
            if rest.len() < SHAPE_LEN {
                return if plausible(rest) { self.fate(enough) } else { Fate::Dead };
            }
            let Some(shape) = shape(rest) else { return Fate::Dead };
            if !self.counted {
                let goes_on = shape.tagged.is_some() && shape.tagged == self.tagged;
                self.score += if shape.strong || goes_on { 2 } else { 1 };
                self.counted = true;
            }
            let total = fpdu_len(shape.length);
            let Some(fpdu) = rest.get(..total) else { return self.fate(enough) };
            let zero = fpdu.ends_with(&[0; CRC_LEN]);
            let checked = terms.crc != CrcUse::Off && terms.budget >= total;
            if checked {
                terms.budget -= total;
            }
            if checked && mpa::check(fpdu) == Check::Good {
                self.crc_good = true;
                self.score += 3;
            } else if checked && terms.crc == CrcUse::On {
                return Fate::Dead;
            } else if zero {
                self.score += 1;
            }
            self.tagged = shape.tagged.map(|(stag, offset)| (stag, offset.wrapping_add(u64::from(shape.length) - 14)));
            self.next += total;
            self.counted = false;
            self.fpdus += 1;
            if self.next == hay.len() {
                self.score += 1;
                return self.fate(enough);
            }
        }
    }

    fn fate(&self, enough: u32) -> Fate {
        if self.fpdus > 0 && self.score >= enough { Fate::Claimed } else { Fate::Open }
    }
}

struct Shape {
    length: u16,
    /// The header alone is hardly chance.
    strong: bool,
    tagged: Option<(u32, u64)>,
}

/// The shape of the FPDU that these [`SHAPE_LEN`] or more bytes can begin.
#[inline]
fn shape(b: &[u8]) -> Option<Shape> {
    let (ddp, rdmap) = (b[2], b[3]);
    if ddp & 0x3f != 0x01 || rdmap & 0xf0 != 0x40 {
        return None;
    }
    let opcode = Opcode(rdmap & 0xf);
    let tagged = ddp & 0x80 != 0;
    if opcode.is_tagged() != Some(tagged) {
        return None;
    }
    let length = u16::from_be_bytes([b[0], b[1]]);
    let word = |at: usize| u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    if tagged {
        let offset = u64::from(word(8)) << 32 | u64::from(word(12));
        return (length >= 14).then_some(Shape { length, strong: false, tagged: Some((word(4), offset)) });
    }
    let least = match opcode {
        Opcode::READ_REQUEST => 18 + 28,
        Opcode::ATOMIC_REQUEST => 18 + 52,
        Opcode::ATOMIC_RESPONSE => 18 + 12,
        Opcode::IMMEDIATE | Opcode::IMMEDIATE_SE => 18 + 8,
        Opcode::TERMINATE => 18 + 4,
        _ => 18,
    };
    let fits = length >= least && Some(word(8)) == opcode.queue();
    // the reserved bytes are 0, but receivers do not check that
    fits.then_some(Shape { length, strong: opcode.invalidates() || word(4) == 0, tagged: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const HEADERS: usize = 14;

    /// An RDMA Write of so many bytes to an offset, in an FPDU.
    fn write(offset: u64, data: usize) -> Vec<u8> {
        let mut out = Vec::new();
        mpa::emit_fpdu(&ulpdu(offset, data), true, &mut out);
        out
    }

    fn ulpdu(offset: u64, data: usize) -> Vec<u8> {
        let mut ulpdu = vec![0xc1, 0x40, 0, 0, 0, 9];
        ulpdu.extend(offset.to_be_bytes());
        ulpdu.resize(HEADERS + data, 0x55);
        ulpdu
    }

    /// Events of a framer: FPDUs with their bytes and CRC, what is kept, and framing that was found.
    #[derive(Default, PartialEq, Debug)]
    struct Seen {
        fpdus: Vec<Known>,
        parts: Vec<(u32, Option<u32>)>,
        resyncs: Vec<(u32, Evidence)>,
        markers: Vec<(u16, u16)>,
        other: usize,
        others: usize,
    }

    impl Seen {
        fn push(&mut self, framer: &mut Framer, bytes: &[u8], missing: u32) {
            let rest = framer.push(Piece { bytes, missing, in_frame: true }, true, &mut |framed| match framed {
                Framed::Fpdu { bytes, crc, .. } => self.fpdus.push((bytes.to_vec(), crc)),
                Framed::Part { have, total } => self.parts.push((have, total)),
                Framed::Resync { skipped, found } => self.resyncs.push((skipped, found)),
                Framed::MarkerBad { pointer, expected } => self.markers.push((pointer, expected)),
                Framed::Other(piece) => {
                    self.other += piece.bytes.len() + piece.missing as usize;
                    self.others += 1;
                }
                Framed::Startup { .. } => {}
            });
            assert!(rest.is_none());
        }
    }

    /// An FPDU, and its CRC.
    type Known = (Vec<u8>, Crc);

    const GOOD: Crc = Crc::Used(Check::Good);
    const UNCHECKED: Crc = Crc::Used(Check::Unchecked);

    /// A framer behind the handshake.
    fn framer(markers: bool) -> Framer {
        Framer {
            phase: Phase::Framing,
            found: Some(Evidence::Handshake),
            known: true,
            crc: CrcUse::On,
            markers,
            sum: Some(0),
            ..Framer::default()
        }
    }

    /// Three FPDUs, and where they begin and end.
    fn three() -> (Vec<u8>, [usize; 4]) {
        let fpdus = [write(0, 10), write(10, 3), write(13, 20)];
        let ends = [0, fpdus[0].len(), fpdus[0].len() + fpdus[1].len(), fpdus.iter().map(Vec::len).sum()];
        (fpdus.concat(), ends)
    }

    fn of(stream: &[u8], ends: &[usize]) -> Vec<Known> {
        ends.windows(2).map(|pair| (stream[pair[0]..pair[1]].to_vec(), GOOD)).collect()
    }

    #[test]
    fn segments_may_end_anywhere() {
        let (stream, ends) = three();
        for at in 0..=stream.len() {
            let (mut seen, mut framer) = (Seen::default(), framer(false));
            seen.push(&mut framer, &stream[..at], 0);
            let begin = ends.iter().rev().find(|end| **end <= at).copied().unwrap_or(0);
            let have = (at - begin) as u32;
            let total = ends.iter().find(|end| **end > at).map(|end| (end - begin) as u32);
            let kept = if have == 0 { vec![] } else { vec![(have, total.filter(|_| have >= 2))] };
            assert_eq!(seen.parts, kept, "{at}");
            seen.push(&mut framer, &stream[at..], 0);
            assert_eq!(seen, Seen { fpdus: of(&stream, &ends), parts: kept, ..Seen::default() }, "{at}");
        }
        // byte by byte
        let (mut seen, mut framer) = (Seen::default(), framer(false));
        stream.iter().for_each(|byte| seen.push(&mut framer, &[*byte], 0));
        assert_eq!((seen.fpdus, seen.resyncs.len()), (of(&stream, &ends), 0));
    }

    #[test]
    fn bytes_that_are_missing_inside_an_fpdu_cut_it_alone() {
        let (stream, ends) = three();
        // the second FPDU has a hole, and comes in one piece before it, or in two
        for from in ends[1] + 2..ends[2] {
            for to in from + 1..=ends[2] {
                for split in [None, Some(ends[1] + 1), Some(from - 1)] {
                    let (mut seen, mut framer) = (Seen::default(), framer(false));
                    if let Some(split) = split {
                        seen.push(&mut framer, &stream[..split], 0);
                        seen.push(&mut framer, &stream[split..from], (to - from) as u32);
                    } else {
                        seen.push(&mut framer, &stream[..from], (to - from) as u32);
                    }
                    // it ends with its last byte, whether that was seen or not
                    assert_eq!(seen.fpdus.len(), if to == ends[2] { 2 } else { 1 });
                    seen.push(&mut framer, &stream[to..], 0);
                    let mut expected = of(&stream, &ends);
                    expected[1] = (stream[ends[1]..from].to_vec(), UNCHECKED);
                    assert_eq!(
                        (seen.fpdus, seen.resyncs, seen.other),
                        (expected, vec![], 0),
                        "{from} to {to}, {split:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_missing_with_a_length_lose_the_framing() {
        let (stream, ends) = three();
        for from in [ends[1], ends[1] + 1] {
            for split in [from, ends[1]] {
                let (mut seen, mut framer) = (Seen::default(), framer(false));
                seen.push(&mut framer, &stream[..split], 0);
                seen.push(&mut framer, &stream[split..from], (ends[2] - from) as u32);
                assert!(framer.is_lost());
                seen.push(&mut framer, &stream[ends[2]..], 0);
                let expected = of(&stream, &[ends[0], ends[1]])
                    .into_iter()
                    .chain(of(&stream, &[ends[2], ends[3]]))
                    .collect::<Vec<_>>();
                assert_eq!(
                    (seen.fpdus, seen.resyncs),
                    (expected, vec![((ends[2] - ends[1]) as u32, Evidence::Crc)]),
                    "{from}, {split}"
                );
                assert!(!framer.is_lost());
            }
        }
    }

    /// Three FPDUs with several markers, the bytes of the first two of them, and how they look without.
    fn marked() -> (Vec<u8>, [usize; 4], Vec<Known>) {
        let (mut stream, mut ends, mut fpdus) = (Vec::new(), [0; 4], Vec::new());
        let mut position = 0;
        for (n, data) in [700, 300, 1200].into_iter().enumerate() {
            let ulpdu = ulpdu(0, data);
            position = mpa::emit_fpdu_with_markers(&ulpdu, true, position, &mut stream);
            ends[n + 1] = stream.len();
            let mut plain = Vec::new();
            mpa::emit_fpdu(&ulpdu, false, &mut plain);
            // the CRC covers the markers
            let crc = plain.len() - CRC_LEN;
            plain[crc..].copy_from_slice(&stream[stream.len() - CRC_LEN..]);
            fpdus.push((plain, GOOD));
        }
        (stream, ends, fpdus)
    }

    #[test]
    fn segments_with_markers_may_end_anywhere() {
        let (stream, ends, fpdus) = marked();
        for at in 0..=stream.len() {
            let (mut seen, mut framer) = (Seen::default(), framer(true));
            seen.push(&mut framer, &stream[..at], 0);
            // the bytes that are kept, without markers
            let number = ends.iter().rposition(|end| *end <= at).unwrap_or(0);
            let have = (ends[number]..at).filter(|n| *n as u32 % MARKER_INTERVAL >= MARKER_LEN as u32).count();
            let total = fpdus.get(number).map(|(fpdu, _)| fpdu.len() as u32).filter(|_| have >= 2);
            assert_eq!(seen.parts, if have == 0 { vec![] } else { vec![(have as u32, total)] }, "{at}");
            seen.push(&mut framer, &stream[at..], 0);
            assert_eq!((&seen.fpdus, seen.markers, seen.resyncs, seen.other), (&fpdus, vec![], vec![], 0), "{at}");
        }
        let (mut seen, mut bytewise) = (Seen::default(), framer(true));
        stream.iter().for_each(|byte| seen.push(&mut bytewise, &[*byte], 0));
        assert_eq!((&seen.fpdus, seen.markers), (&fpdus, vec![]));
        // each pointer is checked
        let bad = |at: usize| {
            let mut stream = stream.clone();
            stream[at + 3] ^= 1;
            let (mut seen, mut framer) = (Seen::default(), framer(true));
            seen.push(&mut framer, &stream, 0);
            (seen.markers.len(), seen.fpdus.iter().filter(|(_, crc)| *crc == GOOD).count())
        };
        assert_eq!([0, 512, 1024, 1536].map(bad), [(1, 2); 4]);
    }

    #[test]
    fn holes_between_markers_cut_an_fpdu_alone() {
        let (stream, ends, fpdus) = marked();
        for from in (ends[1] + 2..ends[2]).step_by(13) {
            for to in (from + 1..=ends[2]).step_by(7).chain([ends[2]]) {
                let (mut seen, mut framer) = (Seen::default(), framer(true));
                seen.push(&mut framer, &stream[..from], (to - from) as u32);
                seen.push(&mut framer, &stream[to..], 0);
                assert_eq!((seen.fpdus.len(), seen.resyncs.len(), seen.other), (3, 0, 0), "{from} to {to}");
                assert_eq!(
                    (&seen.fpdus[0], seen.fpdus[1].1, &seen.fpdus[2].0),
                    (&fpdus[0], UNCHECKED, &fpdus[2].0),
                    "{from} to {to}"
                );
                assert!(fpdus[1].0.starts_with(&seen.fpdus[1].0));
            }
        }
    }

    #[test]
    fn what_cannot_be_an_fpdu_loses_the_framing() {
        let mut bad = write(0, 10);
        bad[2] = 0x99;
        // its first four bytes tell, however they come
        for split in 0..=4 {
            let (mut seen, mut framer) = (Seen::default(), framer(false));
            seen.push(&mut framer, &bad[..split], 0);
            seen.push(&mut framer, &bad[split..4], 0);
            assert!(framer.is_lost() && seen.fpdus.is_empty(), "{split}");
        }
        // one that is whole is passed on if its CRC is right, or one follows it
        let passed = |fpdu: &[u8], behind: &[u8]| {
            let (mut seen, mut framer) = (Seen::default(), framer(false));
            seen.push(&mut framer, &[fpdu, behind].concat(), 0);
            (seen.fpdus.len(), framer.is_lost())
        };
        let none = [0, 9, 0x99, 0x99];
        assert_eq!([passed(&bad, &none), passed(&bad, &[])], [(0, true), (1, false)]);
        let mut right = bad.clone();
        let body = right.len() - CRC_LEN;
        let crc = mpa::crc(&right[..body]).to_le_bytes();
        right[body..].copy_from_slice(&crc);
        assert_eq!(passed(&right, &[]), (1, false));
        assert_eq!(passed(&right, &none), (1, true), "what follows it is none");
    }

    /// Looks for framing in a stream with markers, of a connection that is known to be MPA.
    fn searching() -> Framer {
        Framer {
            phase: Phase::Search,
            known: true,
            crc: CrcUse::On,
            markers: true,
            search: Some(Box::default()),
            ..Framer::default()
        }
    }

    /// FPDUs with markers that carry so much data, and the ends of the first of them.
    fn with_markers(data: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let (mut stream, mut ends, mut position) = (Vec::new(), Vec::new(), 0);
        for data in data {
            position = mpa::emit_fpdu_with_markers(&ulpdu(0, *data), true, position, &mut stream);
            ends.push(stream.len());
        }
        (stream, ends)
    }

    #[test]
    fn markers_that_no_handshake_told_of_are_found() {
        let (stream, ends) = with_markers(&[100, 200, 1200, 488, 20, 5000, 0, 700]);
        let data = |from: usize| [100, 200, 1200, 488, 20, 5000, 0, 700][from..].to_vec();
        let read = |mut framer: Framer, from: usize, segments: &[usize]| {
            let mut seen = Seen::default();
            let mut at = from;
            for to in segments.iter().copied().chain([stream.len()]).filter(|to| *to > from) {
                seen.push(&mut framer, &stream[at..to], 0);
                at = to;
            }
            assert!(framer.markers, "from {from}");
            let bad = seen.fpdus.iter().filter(|(_, crc)| *crc == Crc::Used(Check::Bad)).count();
            assert_eq!((bad, seen.markers.len()), (0, 0), "from {from}");
            seen.fpdus.iter().map(|(fpdu, _)| fpdu.len() - fpdu_len(HEADERS as u16)).collect::<Vec<_>>()
        };
        let padded =
            |from: usize| data(from).into_iter().map(|n| fpdu_len((HEADERS + n) as u16) - fpdu_len(HEADERS as u16));
        // behind a Request or Reply, with its first FPDU, and from any later one on: one FPDU a segment, or several
        for crc in [CrcUse::Unknown, CrcUse::On] {
            for (from, start) in [0].into_iter().chain(ends.iter().copied()).enumerate().take(ends.len() - 1) {
                let told = Framer { crc, ..framer(false) };
                for segments in [&ends[..], &[][..]] {
                    assert_eq!(read(told.clone(), start, segments), padded(from).collect::<Vec<_>>(), "from {from}");
                }
            }
        }
        // not where it is known that there are none, nor where the bytes are only like markers
        let known = |markers: Option<bool>| {
            let (mut seen, mut framer) = (Seen::default(), framer(false));
            framer.agree(Some(true), markers);
            seen.push(&mut framer, &stream, 0);
            framer.markers
        };
        assert_eq!([known(Some(false)), known(None)], [false, true]);
        let mut wrong = write(0, 600);
        wrong[36..40].copy_from_slice(&36u32.to_be_bytes());
        let (mut seen, mut framer) = (Seen::default(), framer(false));
        seen.push(&mut framer, &wrong, 0);
        assert_eq!((seen.fpdus, framer.markers), (vec![(wrong, Crc::Used(Check::Bad))], false));
    }

    #[test]
    fn crcs_are_checked_from_the_next_fpdu_on_once_framing_between_markers_was_found() {
        let crcs = |data: usize, behind: usize| {
            let (stream, ends) = with_markers(&[data, 300, 300]);
            let (mut seen, mut framer) = (Seen::default(), searching());
            let at = ends[0] + behind;
            seen.push(&mut framer, &stream[..at], 0);
            seen.push(&mut framer, &stream[at..], 0);
            assert_eq!((seen.resyncs.as_slice(), seen.markers.len()), ([(0, Evidence::Shape)].as_slice(), 0));
            (ends[0] as u32 % MARKER_INTERVAL, seen.fpdus.iter().map(|(_, crc)| *crc).collect::<Vec<_>>())
        };
        assert_eq!(crcs(600, 0), (116, vec![UNCHECKED, GOOD, GOOD]));
        // the marker before an FPDU is part of its CRC, and was searched
        for behind in 0..=MARKER_LEN {
            assert_eq!(crcs(488, behind), (0, vec![UNCHECKED, UNCHECKED, GOOD]), "{behind}");
        }
    }

    #[test]
    fn bytes_that_are_missing_where_framing_between_markers_is_found_cut_an_fpdu_alone() {
        let (stream, ends) = with_markers(&[600, 300, 1200, 20]);
        for from in (ends[0] + SHAPE_LEN..ends[1]).step_by(11) {
            for to in (from + 1..=ends[1]).step_by(7).chain([ends[1]]) {
                let (mut seen, mut framer) = (Seen::default(), searching());
                seen.push(&mut framer, &stream[..from], (to - from) as u32);
                seen.push(&mut framer, &stream[to..], 0);
                let lengths: Vec<_> = seen.fpdus.iter().map(|(fpdu, _)| fpdu.len()).collect();
                let whole = [600, 300, 1200, 20].map(|data| fpdu_len((HEADERS + data) as u16));
                assert_eq!((lengths[0], lengths[2..].to_vec()), (whole[0], whole[2..].to_vec()), "{from} to {to}");
                assert!(lengths[1] < whole[1] && seen.fpdus[1].1 == UNCHECKED, "{from} to {to}");
                assert_eq!((seen.resyncs.len(), seen.markers.len()), (1, 0), "{from} to {to}");
            }
        }
    }

    #[test]
    fn framing_is_found_behind_bytes_that_are_missing_inside_a_marker() {
        let (stream, ends) = with_markers(&[488, 300, 300]);
        assert_eq!(ends[0], 512, "the second FPDU begins behind a marker");
        for to in 509..=516 {
            for split in [to, to + 1, to + 2, to + 3, stream.len()] {
                let (mut seen, mut framer) = (Seen::default(), searching());
                seen.push(&mut framer, &[0xff; 100], to as u32 - 100);
                seen.push(&mut framer, &stream[to..split], 0);
                seen.push(&mut framer, &stream[split..], 0);
                let lengths: Vec<_> = seen.fpdus.iter().map(|(fpdu, _)| fpdu.len()).collect();
                assert_eq!(
                    (lengths, seen.markers.len()),
                    (vec![fpdu_len(HEADERS as u16 + 300); 2], 0),
                    "{to}, {split}"
                );
            }
        }
    }

    #[test]
    fn what_stands_behind_a_request() {
        // an MPA Request without private data
        let request = [b"MPA ID Req Frame".as_slice(), &[0x40, 1, 0, 0]].concat();
        let behind = |bytes: &[u8], missing: u32| {
            let mut framer = Framer::default();
            let mut told = 0;
            let bytes = [&request, bytes].concat();
            let piece = Piece { bytes: &bytes, missing, in_frame: true };
            let rest =
                framer.push(piece, true, &mut |framed| told += usize::from(matches!(framed, Framed::Startup { .. })));
            assert_eq!((told, framer.found()), (1, Some(Evidence::Handshake)));
            rest.map(|rest| (rest.bytes.len(), rest.missing))
        };
        assert_eq!([behind(&[], 0), behind(&[], 1), behind(&[9], 0)], [None, Some((0, 1)), Some((1, 0))]);
    }

    #[test]
    fn how_many_places_are_followed_at_once() {
        // headers of FPDUs that end far behind the bytes that are there
        let header = [0xff, 0xff, 0xc1, 0x40, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let followed = |count: usize| {
            let mut search = Search::default();
            let found = search.look(&header.repeat(count), 0, &mut Terms { known: true, crc: CrcUse::Off, budget: 0 });
            (found, search.candidates.len())
        };
        assert_eq!(
            [1, CANDIDATES_MAX, CANDIDATES_MAX + 1].map(followed),
            [1, CANDIDATES_MAX, CANDIDATES_MAX].map(|n| (None, n))
        );
    }

    #[test]
    fn the_header_of_the_next_fpdu_is_evidence_once_it_is_whole() {
        let (stream, ends) = three();
        let found = |more: usize| {
            let terms = &mut Terms { known: true, crc: CrcUse::Off, budget: 0 };
            Search::default().look(&stream[..ends[1] + more], 0, terms)
        };
        assert_eq!([SHAPE_LEN - 1, SHAPE_LEN].map(found), [None, Some((0, Evidence::Shape))]);
    }

    #[test]
    fn use_of_crcs_is_learnt() {
        let learn = |crcs: &[(bool, [u8; 4])]| {
            let mut framer = Framer::default();
            let told: Vec<Crc> = crcs.iter().map(|(good, field)| framer.learn_crc_use(*good, *field)).collect();
            (told.last().copied(), framer.crc)
        };
        let wrong = (false, [1; 4]);
        assert_eq!(learn(&[(true, [1; 4])]), (Some(GOOD), CrcUse::On));
        assert_eq!(learn(&[(true, [1; 4]), wrong]), (Some(Crc::Used(Check::Bad)), CrcUse::On));
        assert_eq!(learn(&[(false, [0; 4])]), (Some(Crc::Unused), CrcUse::Off));
        assert_eq!(learn(&[wrong, wrong]), (Some(Crc::Unused), CrcUse::Unknown));
        assert_eq!(learn(&[wrong, wrong, wrong]), (Some(Crc::Unused), CrcUse::Off));
        assert_eq!(learn(&[wrong, wrong, (true, [1; 4])]), (Some(GOOD), CrcUse::On));
        let unchecked =
            [CrcUse::Unknown, CrcUse::On, CrcUse::Off].map(|crc| Framer { crc, ..Framer::default() }.unchecked());
        assert_eq!(unchecked, [Crc::Unused, UNCHECKED, Crc::Unused]);
    }

    #[test]
    fn a_run_of_fpdus_is_checked_once() {
        let (stream, ends) = three();
        let verified = |length: usize| {
            let mut framer = Framer::default();
            framer.mark_verified(&stream, length as u32);
            [0, 1, 2].map(|n: usize| framer.is_verified(&stream[ends[n]..ends[n + 1]]))
        };
        assert_eq!(verified(ends[3]), [true; 3]);
        assert_eq!(verified(ends[3] + 9), [true; 3]);
        assert_eq!(verified(ends[3] - 1), [true, true, false]);
        assert_eq!(verified(ends[1]), [true, false, false]);
        assert_eq!(verified(0), [false; 3]);
        let mut framer = Framer::default();
        framer.mark_verified(&stream, ends[3] as u32);
        assert!(!framer.is_verified(&stream[ends[1]..ends[2]]), "not the next");
    }

    #[test]
    fn first_bytes_of_an_fpdu() {
        let of = |ddp: u8, rdmap: u8| plausible(&[0, 20, ddp, rdmap, 0]);
        assert_eq!([0x01, 0x41, 0x81, 0xc1].map(|ddp| of(ddp, 0x40)), [true; 4]);
        assert_eq!([0x00, 0x02, 0x03, 0x05, 0x42].map(|ddp| of(ddp, 0x40)), [false; 5]);
        assert_eq!([0x00, 0x40, 0x4b, 0x0b].map(|rdmap| of(0x41, rdmap)), [true; 4]);
        assert_eq!([0x80, 0x10, 0x4c, 0x4f].map(|rdmap| of(0x41, rdmap)), [false; 4]);
        assert!(
            plausible(&[])
                && plausible(&[0])
                && plausible(&[0, 20])
                && plausible(&[0, 20, 0x41])
                && !plausible(&[0, 20, 0x42])
        );
        // the first of a direction may be empty
        let framer = Framer::default();
        assert!(framer.fits(&[0, 0, 0, 0]) && !Framer { begun: true, ..Framer::default() }.fits(&[0, 0, 0, 0]));
    }

    #[test]
    fn first_bytes_of_something_else() {
        let smb = |mark: u8| is_something_else(&[0, 0, 0, 80, mark, b'S', b'M', b'B', 64]);
        assert_eq!([0xfb, 0xfc, 0xfd, 0xfe, 0xff].map(smb), [false, true, true, true, true]);
        let rpc = |mark: u8, kind: u8, last: u8| {
            is_something_else(&[mark, 0, 0, 80, 1, 2, 3, 4, 0, 0, 0, kind, 0, 0, 0, last, 9])
        };
        assert_eq!([rpc(0x80, 0, 2), rpc(0x80, 0, 1), rpc(0, 0, 2), rpc(0xff, 0, 2)], [true, false, false, true]);
        assert_eq!([rpc(0x80, 1, 0), rpc(0x80, 1, 1), rpc(0x80, 1, 2), rpc(0, 1, 0)], [true, true, false, false]);
    }

    #[test]
    fn shapes_of_headers() {
        let header = |ddp: u8, opcode: Opcode, length: usize, queue: u32, word: u32| {
            let mut bytes = (length as u16).to_be_bytes().to_vec();
            bytes.extend([ddp, 0x40 | opcode.0]);
            bytes.extend(word.to_be_bytes());
            bytes.extend(queue.to_be_bytes());
            bytes.resize(SHAPE_LEN, 0);
            shape(&bytes).map(|shape| shape.strong)
        };
        let rows = [
            (Opcode(0x3), 18, true),
            (Opcode(0x4), 18, true),
            (Opcode(0x5), 18, true),
            (Opcode(0x6), 18, true),
            (Opcode::READ_REQUEST, 46, true),
            (Opcode::TERMINATE, 22, true),
            (Opcode::IMMEDIATE, 26, true),
            (Opcode::IMMEDIATE_SE, 26, true),
            (Opcode::ATOMIC_REQUEST, 70, true),
            (Opcode::ATOMIC_RESPONSE, 30, true),
        ];
        for (opcode, least, strong) in rows {
            let queue = opcode.queue().unwrap_or_default();
            assert_eq!(header(0x41, opcode, least, queue, 0), Some(strong), "{opcode:?}");
            assert_eq!(header(0x41, opcode, least - 1, queue, 0), None, "{opcode:?}");
            assert_eq!(header(0x41, opcode, least, queue + 1, 0), None, "{opcode:?}");
            assert_eq!(header(0xc1, opcode, least, queue, 0), None, "{opcode:?}");
            // a key is in its place, or what receivers do not check
            assert_eq!(header(0x41, opcode, least, queue, 5), Some(opcode.invalidates()), "{opcode:?}");
        }
        for opcode in [Opcode(0), Opcode(2)] {
            assert_eq!([13, 14].map(|length| header(0xc1, opcode, length, 7, 7)), [None, Some(false)]);
            assert_eq!(header(0x41, opcode, 14, 0, 0), None);
        }
        assert_eq!([header(0x42, Opcode(3), 18, 0, 0), header(0x41, Opcode(0xc), 18, 0, 0)], [None, None]);
        let mut other = write(0, 10);
        other[3] = 0x80;
        assert!(shape(&other).is_none());
    }

    #[test]
    fn evidence_adds_up() {
        let fate = |fpdus: u32, score: u32| {
            let c = Candidate { start: 0, next: 0, score, fpdus, crc_good: false, counted: false, tagged: None };
            c.fate(5)
        };
        assert_eq!(
            [fate(1, 5), fate(1, 4), fate(0, 5), fate(2, 6)],
            [Fate::Claimed, Fate::Open, Fate::Open, Fate::Claimed]
        );
        // what is found in so many bytes, of a connection that is known to be iWARP or not
        let found = |bytes: &[u8], known: bool, crc: CrcUse, budget: usize| {
            let mut search = Search::default();
            let found = search.look(bytes, 0, &mut Terms { known, crc, budget });
            (found, search.candidates.iter().map(|c| (c.start, c.score, c.fpdus)).collect::<Vec<_>>())
        };
        let (stream, ends) = three();
        let (one, two) = (&stream[..ends[1]], &stream[..ends[2]]);
        let claimed = |at: usize, found: Evidence| (Some((at, found)), Vec::new());
        // with a CRC that is right: at the beginning of a segment, a header, the CRC, the end
        assert_eq!(found(one, false, CrcUse::Unknown, 1000), claimed(0, Evidence::Crc));
        assert_eq!(found(one, true, CrcUse::On, one.len()), claimed(0, Evidence::Crc));
        // by its shape alone one is enough if iWARP is known
        assert_eq!(found(one, true, CrcUse::Off, 1000), claimed(0, Evidence::Shape));
        assert_eq!(found(one, true, CrcUse::Unknown, one.len() - 1), claimed(0, Evidence::Shape));
        assert_eq!(found(one, false, CrcUse::Off, 1000), (None, vec![(0, 3, 1)]));
        // a second one that goes on where the first ended
        assert_eq!(found(two, false, CrcUse::Off, 1000), claimed(0, Evidence::Shape));
        let apart = [write(0, 10), write(11, 3)].concat();
        assert_eq!(found(&apart, false, CrcUse::Off, 1000), (None, vec![(0, 4, 2), (ends[1], 2, 1)]));
        // behind what is none
        let behind = [&[0xff; 7][..], two].concat();
        assert_eq!(found(&behind, true, CrcUse::Off, 1000).0, Some((7, Evidence::Shape)));
        // a wrong CRC where CRCs are in use
        let mut wrong = one.to_vec();
        wrong[20] ^= 1;
        assert_eq!(found(&wrong, true, CrcUse::On, 1000), (None, vec![]));
        assert_eq!(found(&wrong, true, CrcUse::Unknown, 1000), claimed(0, Evidence::Shape));
    }

    #[test]
    fn a_search_from_the_first_byte_fails_at_once() {
        let look = |anchored: bool, bytes: &[u8]| {
            let mut search = Search { anchored, ..Search::default() };
            let terms = &mut Terms { known: false, crc: CrcUse::Off, budget: 0 };
            let found = search.look(bytes, 0, terms).map(|(at, _)| at);
            (found, found.is_none() && search.failed, search.scan)
        };
        let (stream, ends) = three();
        assert_eq!(look(true, &stream[..ends[2]]), (Some(0), false, 1));
        let behind = [&[0xff][..], &stream[..ends[2]]].concat();
        assert_eq!(look(true, &behind), (None, true, 2));
        assert!(!look(false, &behind).1);
        // too short to tell
        assert_eq!(look(true, &stream[..SHAPE_LEN - 1]), (None, false, 0));
        assert_eq!(look(true, &stream[..SHAPE_LEN]), (None, false, 1));
    }

    #[test]
    fn how_many_bytes_are_searched() {
        let searched = |length: usize, known: bool| {
            let mut framer = Framer { phase: Phase::Search, known, search: Some(Box::default()), ..Framer::default() };
            let mut seen = Seen::default();
            seen.push(&mut framer, &vec![0xff; length], 0);
            (framer.verdict(), seen.other, framer.buf.len(), framer.skipped as usize)
        };
        assert_eq!(searched(SEARCH_MAX, false), (Recognition::Undecided, 0, SEARCH_MAX, 0));
        assert_eq!(searched(SEARCH_MAX + 1, false), (Recognition::NotMpa, SEARCH_MAX + 1, 0, 0));
        assert_eq!(searched(SEARCH_MAX, true), (Recognition::Mpa, 0, SEARCH_MAX, 0));
        assert_eq!(searched(SEARCH_MAX + 1, true), (Recognition::Mpa, 0, 0, SEARCH_MAX + 1));
        // the same with a part that was kept
        let mut framer = Framer { phase: Phase::Search, search: Some(Box::default()), ..Framer::default() };
        let mut seen = Seen::default();
        seen.push(&mut framer, &vec![0xff; SEARCH_MAX], 0);
        seen.push(&mut framer, &[0xff], 0);
        assert_eq!((framer.verdict(), seen.other), (Recognition::NotMpa, SEARCH_MAX + 1));
        // SMB at the start of a segment ends the search
        let mut framer = Framer { phase: Phase::Search, search: Some(Box::default()), ..Framer::default() };
        let mut seen = Seen::default();
        seen.push(&mut framer, b"\0\0\0\x50\xfeSMB\x40\0\0\0", 3);
        assert_eq!((framer.verdict(), seen.other), (Recognition::NotMpa, 15));
        // what is missing behind it is told, too, if anything is
        for (missing, told) in [(0, (18, 1)), (3, (21, 2))] {
            let mut framer = Framer { phase: Phase::Search, search: Some(Box::default()), ..Framer::default() };
            let mut seen = Seen::default();
            seen.push(&mut framer, &[0xff; 6], 0);
            seen.push(&mut framer, b"\0\0\0\x50\xfeSMB\x40\0\0\0", missing);
            assert_eq!((seen.other, seen.others), told);
        }
        // bytes that are missing end a chain
        let mut framer =
            Framer { phase: Phase::Search, known: true, search: Some(Box::default()), ..Framer::default() };
        seen.push(&mut framer, &[0xff; 9], 5);
        assert_eq!((framer.skipped, framer.buf.len()), (14, 0));
    }

    #[test]
    fn memory_is_given_back() {
        let cleared = |capacity: usize| {
            let mut framer = Framer { buf: Vec::with_capacity(capacity), ..Framer::default() };
            framer.clear();
            framer.buf.capacity()
        };
        assert_eq!([cleared(KEEP_CAPACITY), cleared(KEEP_CAPACITY + 1)], [KEEP_CAPACITY, 0]);
    }
}
