#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

#[cfg(unix)]
mod asked;
pub mod c;
mod engine;
pub mod facts;
mod link;
#[cfg(unix)]
mod lua;
mod settled;

pub use engine::{Engine, Error, Frame, Options, Status};

/// The version of the engine; a plugin works with its own only.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of the C interface and of the buffer of facts.
pub const INTERFACE: u32 = 1;
