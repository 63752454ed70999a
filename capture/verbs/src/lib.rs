#![doc = include_str!("../README.md")]
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod buffer;
mod connection;
mod device;
mod error;
mod library;
mod listener;
mod sniffer;
#[doc(hidden)]
pub mod sys;

pub use connection::{Connection, Ended, Event, Numbers, Operation, Options, Region, Rights, What};
pub use device::{Abilities, Device, PortState};
pub use error::{Error, Result};
pub use library::Verbs;
pub use listener::{Listener, Request};
pub use sniffer::{Clock, Packet, Sniffer, SnifferOptions, Statistics};
