#![forbid(unsafe_code)]
#![no_std]
//! Packets to RDMA operations, messages, exchanges and findings: all state, still no I/O and no clock.
//!
//! One direction: packet → [`op::RdmaOp`] → message → exchange → finding. Time is an argument everywhere.
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod connection;
pub mod credits;
pub mod env;
pub mod exchange;
pub mod finding;
pub mod flow;
#[doc(hidden)]
pub mod fuzzing;
pub mod keys;
pub mod latency;
pub mod memory;
pub mod mirror;
pub mod op;
pub mod payload;
pub mod pipeline;
pub mod receive;
pub mod report;
pub mod rpcrdma;
pub mod rules;
pub mod series;
pub mod smb2;
pub mod smbd;
pub mod stats;
pub mod stream;
pub mod totals;
pub mod unseal;
