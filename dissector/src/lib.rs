#![forbid(unsafe_code)]
#![no_std]
#![doc = include_str!("../README.md")]
//!
//! # The modules
//! Bytes of a captured packet to typed headers and field trees.
//!
//! Stateless: no I/O, no clock, no memory of earlier packets. One decode function per message, generic over an
//! observer ([`trace::Trace`]): [`trace::Off`] costs nothing, [`trace::Tree`] keeps every field with its byte range.
//! What needs memory (streams, queue pairs, requests and their replies) is the analyzer's, which calls these same
//! functions. How to add a field or a message is in this crate's README.
//!
//! | to | read |
//! | --- | --- |
//! | decode a frame | [`frame::decode`]: link layer, IP and tunnels down to an InfiniBand packet or a TCP segment |
//! | decode what is above | [`wire`]: one file per protocol, each with the fields, the decoder, the encoder and tests |
//! | see how a field is declared | [`header`](mod@header), [`field`], and [`registry`], which knows all by name |
//! | observe decoding | [`trace`]: all fields as a tree; [`extract`]: the values of some |
//! | filter | [`filter`]: Wireshark's display filters; [`wireshark`]: the names that only Wireshark has |
//! | show values | [`render`]: as tshark shows them, and as people read them |
//! | write for people | [`text`]: escaping, numbers, durations, sizes; [`calendar`]; [`address`] |
//! | know why decoding stopped | [`fault`] |
//!
//! # A display filter
//! Only the fields that the filter looks at are kept.
//! ```
//! use rdmascope_dissector::extract::Extractor;
//! use rdmascope_dissector::filter::Filter;
//! use rdmascope_dissector::frame::{LinkType, Options, decode};
//! use rdmascope_dissector::registry::Registry;
//!
//! # const FRAME: &[u8] = &[
//! #     0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0x02, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1,
//! #     192, 0, 2, 2, 0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0, 0x81, 0x00, 0xff, 0xff, 0x40, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
//! #     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
//! # ];
//! let registry = Registry::new();
//! let mut filter = Filter::parse("infiniband.bth.opcode == 0x81 && ip.src in {192.0.2.0/24}", &registry)?;
//! let mut extractor = Extractor::new();
//! filter.bind(&mut extractor);
//!
//! extractor.begin();
//! decode(LinkType::ETHERNET, FRAME, FRAME.len() as u32, &Options::default(), &mut extractor);
//! assert!(filter.matches(&extractor));
//!
//! let error = Filter::parse("infiniband.bth.opcod == 0x81", &registry).unwrap_err();
//! assert!(error.to_string().contains("infiniband.bth.opcode"), "names the field that was meant: {error}");
//! # Ok::<(), rdmascope_dissector::filter::Error>(())
//! ```
//!
//! # One header
//! Every decoder takes exactly the bytes of its message, and names the field that is missing where there are too few.
//! ```
//! use rdmascope_dissector::trace::Off;
//! use rdmascope_dissector::wire::ib::bth::Bth;
//!
//! let bytes = [0x81, 0x00, 0xff, 0xff, 0x40, 0, 0, 0x12, 0, 0, 0, 0];
//! let (rest, bth) = Bth::parse(&bytes, &mut Off).unwrap();
//! assert!(rest.is_empty());
//! assert_eq!(bth.dest_qp, 0x12);
//! assert!(Bth::parse(&bytes[..7], &mut Off).is_err());
//! ```
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod calendar;
mod digits;
pub mod fault;
pub mod field;
#[doc(hidden)]
pub mod fuzzing;
#[macro_use]
pub mod header;
pub mod extract;
pub mod filter;
pub mod frame;
mod frame_fields;
pub mod leaf;
pub mod registry;
pub mod render;
pub mod text;
pub mod trace;
pub mod wire;
pub mod wireshark;
