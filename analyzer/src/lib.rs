#![forbid(unsafe_code)]
#![no_std]
//! Packets to RDMA operations, messages, exchanges and findings: all state of the analysis, still no I/O and no clock. Time is an
//! argument everywhere, in ns since the Unix epoch.
//!
//! ```text
//!   frame ─▶ pipeline ─▶ flow ─▶ RdmaOp ─▶ memory, messages ─▶ upper ─▶ exchange, finding ─▶ report
//!            which       order:  the waist  keys; SMB Direct,   SMB2,
//!            connection  PSN,               RPC-over-RDMA,      RPC,
//!                        TCP, MPA           records of TCP      NFS
//! ```
//!
//! A caller feeds [`pipeline::Pipeline`] frames in order, hears of results by a [`sink::Sink`], and takes a [`report::Report`] at the end.
//!
//! | to | read |
//! | --- | --- |
//! | follow a frame to its connection | [`pipeline`]: the table, pairing of queue pairs, connection management, fragments; several threads |
//! | put packets in order | [`flow`]: reliable connections, TCP, MPA and DDP; losses and their recovery |
//! | see what is the same for InfiniBand, RoCE and iWARP | [`op`] |
//! | see what holds the layers of a connection together | [`connection`], a thin shell; [`context`], what each layer gets of a frame; [`env`](mod@env), what all connections share |
//! | follow remote keys | [`memory`] |
//! | read messages | [`messages`]: SMB Direct with its rulebook [`smbd::link`], RPC-over-RDMA, streams |
//! | tie replies to requests | [`upper`]: SMB2, RPC, NFS, payloads; [`credits`], the rulebook of SMB2's credits; [`keys`], decryption |
//! | know what a request waited for | [`settle`], [`episodes`], [`exchange`] |
//! | know what is wrong, whose doing it is and how sure that is | [`rules`], all in one table; [`finding`]; [`missed`], what was not seen; [`roots`], causes and what follows from them |
//! | look at what is beside connections | [`pauses`], [`devices`], [`marking`], [`mirror`], [`roles`] |
//! | make a report | [`report`]: [`totals`], [`outcome`], [`path`], [`session`], [`answer`]; [`audit`]; from what the layers tell as plain data: [`summary`], [`smb_setup`], [`stats`], [`series`], [`latency`], [`timeline`] |
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
pub mod pieces;
pub mod pipeline;
pub mod recent;
pub mod report;
pub mod roles;
pub mod roots;
pub mod rpcbind;
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
