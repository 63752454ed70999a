#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anonymize;
pub mod cut;
mod mapping;
mod sums;
mod watch;
mod window;

pub use anonymize::{Anonymizer, Frame, Options, Payload, Tally};
pub use mapping::Mapping;
