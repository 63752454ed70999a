#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod decapsulate;
mod error;
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
pub mod hardware;
mod inflate;
pub mod live;
mod mapped;
mod merge;
mod metadata;
mod not_capture;
mod open;
mod pages;
mod pcap;
mod pcapng;
mod pieces;
mod random_access;
mod record;
mod source;
mod span;
mod spool;
mod stream;
mod system;
#[cfg(test)]
mod testing;
mod walk;
mod write;

pub use decapsulate::{Decapsulator, Mirror, decapsulate};
pub use error::{Damage, Error, Problem, Result};
pub use hardware::{Hardware, Row as HardwareRow};
pub use mapped::{CaptureFile, MappedSource, RecordIter, SharedFile, SharedWalk};
pub use merge::MergedSource;
pub use metadata::{
    Clock, Format, Interface, InterfaceStatistics, MAX_INTERFACES, MAX_KEPT_BYTES, MAX_SECTIONS, Metadata, Name,
    Secrets, Section,
};
pub use open::{Capture, OpenOptions, open};
pub use pieces::{Chunk, FrameAt, Place};
pub use random_access::RandomAccess;
pub use rdmascope_dissector::frame::LinkType;
pub use record::{Options, PacketOption, Record};
pub use source::{Progress, Source};
pub use spool::temporary_file;
pub use stream::{Follow, StreamSource};
pub use system::prefetch;
pub use walk::DEFAULT_MAX_RECORD_LEN;
pub use write::{Access, Existing, Output, PcapWriter, PcapngWriter, WholeFile, fresh, stands_at};
