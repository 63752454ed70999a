#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod changes;
mod clock;
pub mod diff;
mod directions;
pub mod expect;
mod history;
pub mod names;
mod packets;
pub mod page;
mod pairs;
mod point;
pub mod points;
pub mod profile;
mod schema;
mod statistics;
