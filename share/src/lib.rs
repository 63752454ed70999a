#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anonymize;
mod batch;
mod block;
mod compress;
pub mod cut;
#[doc(hidden)]
pub mod fuzzing;
mod mapping;
mod shape;
mod sums;
mod tally;
mod watch;
mod window;

pub use anonymize::{Anonymizer, Frame};
pub use batch::{FrameBatch, NewFrames};
pub use mapping::Mapping;
pub use tally::{Extra, Options, Payload, Tally};
