//! Packets to [`crate::op::RdmaOp`]: PSN order of queue pairs, TCP order, MPA framing, DDP segments.
pub mod copies;
pub mod ib;
pub mod iwarp;
pub mod mpa;
pub mod psn;
pub mod report;
pub mod tcp;
