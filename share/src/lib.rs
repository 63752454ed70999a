#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anonymize;
mod block;
mod compress;
pub mod cut;
#[doc(hidden)]
pub mod fuzzing;
mod mapping;
mod parcel;
mod shape;
mod sums;
mod tally;
mod watch;
mod window;

pub use anonymize::{Anonymizer, Frame};
pub use mapping::Mapping;
pub use parcel::{Made, Parcel};
pub use tally::{Extra, Options, Payload, Tally};
