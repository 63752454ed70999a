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
//! Frames come from anywhere; `rdmascope-capture` reads them from files and interfaces.
//! ```
//! use rdmascope_analyzer::env::Options;
//! use rdmascope_analyzer::pipeline::{FrameMeta, Pipeline};
//! use rdmascope_dissector::frame::LinkType;
//! use rdmascope_dissector::trace::Off;
//!
//! // a congestion notification of RoCEv2
//! const FRAME: &[u8] = &[
//!     0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
//!     0x45, 0x02, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, // IPv4
//!     0xc0, 0, 0x12, 0xb7, 0, 40, 0, 0, // UDP, to port 4791
//!     0x81, 0x00, 0xff, 0xff, 0x40, 0, 0, 0x12, 0, 0, 0, 0, // BTH: opcode CNP, queue pair 0x12
//!     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // reserved
//!     0, 0, 0, 0, // ICRC
//! ];
//!
//! let mut pipeline = Pipeline::new(Options::default());
//! for (number, time_ns) in [(1, 0), (2, 50_000)] {
//!     let meta = FrameMeta { number, time_ns, link_type: LinkType::ETHERNET, wire_len: FRAME.len() as u32, interface: 0 };
//!     pipeline.frame(&meta, FRAME, &mut Off);
//! }
//! let (report, _) = pipeline.finish();
//! assert_eq!(report.capture.frames, 2);
//! for finding in report.findings.ranked() {
//!     println!("{} {}: {}", finding.severity.name(), finding.rule.id(), report.sentence(finding));
//! }
//! # let ids: Vec<&str> = report.findings.ranked().iter().map(|finding| finding.rule.id()).collect();
//! # assert!(ids.contains(&"RC-CNP"), "{ids:?}");
//! ```
//!
//! | to | read |
//! | --- | --- |
//! | follow a frame to its connection | [`pipeline`]: the table, pairing of queue pairs, connection management, fragments; threads |
//! | put packets in order | [`flow`]: reliable connections, TCP, MPA and DDP; losses and their recovery |
//! | see the common form of InfiniBand, RoCE and iWARP | [`op`] |
//! | see how the layers of a connection fit together | [`connection`], a thin shell; [`context`], the facts about a frame |
//! | see the state that all connections share | [`env`](mod@env) |
//! | follow remote keys | [`memory`] |
//! | read messages | [`messages`]: SMB Direct with its rulebook [`smbd::link`], RPC-over-RDMA, streams |
//! | tie replies to requests | [`upper`]: SMB2, RPC, NFS, payloads; [`credits`], the rulebook of SMB2's credits; [`keys`], decryption |
//! | know the delays of a request | [`settle`], [`episodes`], [`exchange`] |
//! | know the violations, and the side to blame | [`rules`], all in one table; [`finding`]; [`roots`], causes and effects |
//! | know how certain that is | [`missed`], the gaps of the capture |
//! | look at the network around connections | [`pauses`], [`devices`], [`marking`], [`mirror`], [`roles`] |
//! | make a report | [`report`]: [`totals`], [`outcome`], [`path`], [`session`], [`answer`]; [`audit`] |
//! | see the plain data that a report is made of | [`summary`], [`smb_setup`], [`stats`], [`series`], [`latency`], [`timeline`] |
//! | keep a report as bytes | [`stored`] |
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
pub mod stored;
pub mod summary;
pub mod timeline;
pub mod upper;

pub use messages::smbd;
pub use report::{answer, outcome, path, session, totals};
