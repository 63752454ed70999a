#![forbid(unsafe_code)]
#![no_std]
//! Packets to RDMA operations, messages, exchanges and findings: all state, still no I/O and no clock.
//!
//! One direction: packet → [`op::RdmaOp`] → message → exchange → finding. Time is an argument everywhere.
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod audit;
pub mod connection;
pub mod context;
pub mod credits;
pub mod devices;
pub mod env;
pub mod episodes;
pub mod exchange;
pub mod finding;
pub mod flow;
#[doc(hidden)]
pub mod fuzzing;
pub mod keys;
pub mod latency;
pub mod marking;
pub mod memory;
pub mod messages;
pub mod mirror;
pub mod missed;
pub mod notes;
pub mod op;
pub mod pauses;
pub mod pipeline;
pub mod recent;
pub mod report;
pub mod roles;
pub mod roots;
pub mod rules;
pub mod series;
pub mod settle;
pub mod sink;
pub mod smb_setup;
pub mod stats;
pub mod summary;
pub mod timeline;
pub mod upper;

pub use messages::smbd;
pub use report::{answer, outcome, path, session, totals};
