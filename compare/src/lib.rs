#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
pub mod diff;
mod directions;
pub mod expect;
mod history;
pub mod names;
pub mod page;
mod pairs;
pub mod points;
pub mod profile;
mod schema;
mod statistics;
