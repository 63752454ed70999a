#![forbid(unsafe_code)]
#![no_std]
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
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod calendar;
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
