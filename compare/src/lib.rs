#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod diff;
pub mod expect;
pub mod points;
pub mod profile;
mod statistics;
