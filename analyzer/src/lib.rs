#![forbid(unsafe_code)]
#![no_std]
#![doc = include_str!("../README.md")]
//!
//! # The modules
//! Packets to RDMA operations, messages, exchanges and findings: all state of the analysis, still no I/O and no clock.
//! Time is an argument everywhere, in ns since the Unix epoch.
//!
//! ```text
//!   frame ─▶ pipeline ─▶ flow ─▶ RdmaOp ─▶ memory, messages ─▶ upper ─▶ exchange, finding ─▶ report
//!            which       order:  the waist  keys; SMB Direct,   SMB2,
//!            connection  PSN,               RPC-over-RDMA,      RPC,
//!                        TCP, MPA           records of TCP      NFS
//! ```
//!
//! | to | read |
//! | --- | --- |
//! | follow a frame to its connection | [`pipeline`]: the table, pairing of queue pairs, connection management, fragments; threads |
//! | put packets in order | [`flow`]: reliable connections, TCP, MPA and DDP; losses and their recovery |
//! | see the common form of InfiniBand, RoCE and iWARP | [`op`] |
//! | see how the layers of a connection fit together | [`connection`], a thin shell; `context`, the facts about a frame |
//! | see the state that all connections share | [`env`](mod@env) |
//! | follow remote keys | `memory` |
//! | read messages | [`messages`]: SMB Direct with its rulebook [`smbd::link`], RPC-over-RDMA, streams |
//! | tie replies to requests | `upper`: SMB2, RPC, NFS, payloads; [`credits`], the rulebook of SMB2's credits; [`keys`], decryption |
//! | know the delays of a request | `settle`, [`episodes`], [`exchange`] |
//! | know the violations, and the side to blame | [`rules`], all in one table; [`finding`]; [`roots`], causes and effects |
//! | know how certain that is | `missed`, the gaps of the capture |
//! | look at the network around connections | [`pauses`], [`devices`], [`marking`], [`mirror`], `roles` |
//! | make a report | [`report`]: [`totals`], [`outcome`], [`path`], [`session`], [`answer`]; `audit` |
//! | see the plain data that a report is made of | `summary`, `smb_setup`, [`stats`], [`series`], [`latency`], [`timeline`] |
//! | keep a report as bytes | [`stored`] |
extern crate alloc;
#[cfg(test)]
extern crate std;

mod audit;
mod breaks;
pub mod connection;
mod context;
mod covered;
pub mod credits;
pub mod delays;
pub mod devices;
pub mod env;
pub mod episodes;
pub mod exchange;
mod failing;
pub mod finding;
pub mod flow;
#[doc(hidden)]
pub mod fuzzing;
pub mod keys;
pub mod latency;
pub mod marking;
mod memory;
pub mod messages;
pub mod mirror;
mod missed;
mod nfs_causes;
pub mod notes;
pub mod op;
pub mod pauses;
pub mod pieces;
pub mod pipeline;
pub mod put_off;
mod recent;
mod rejected;
pub mod report;
mod roles;
pub mod roots;
mod rpcbind;
pub mod rules;
pub mod series;
mod settle;
pub mod sink;
mod slower;
mod smb_setup;
pub mod stats;
pub mod stored;
mod summary;
pub mod timeline;
mod upper;

pub use messages::smbd;
pub use report::{answer, outcome, path, session, totals};
