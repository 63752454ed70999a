//! Packets to [`crate::op::RdmaOp`]: PSN order of queue pairs, TCP order, MPA framing, DDP segments; and
//! facts about them, which [`crate::connection::facts`] holds against the rules of these layers.
pub mod copies;
pub mod ib;
pub mod iwarp;
pub mod losses;
pub mod mpa;
pub mod psn;
pub mod recovery;
pub mod repair;
pub mod restart;
pub mod sizes;
pub mod tcp;
pub mod violation;
