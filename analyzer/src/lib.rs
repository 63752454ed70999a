#![forbid(unsafe_code)]
#![no_std]
//! Packets to RDMA operations, messages, exchanges and findings: all state, still no I/O and no clock.
//!
//! One direction: packet → [`op::RdmaOp`] → message → exchange → finding. Time is an argument everywhere.
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod finding;
pub mod flow;
#[doc(hidden)]
pub mod fuzzing;
pub mod keys;
pub mod op;
pub mod rules;
