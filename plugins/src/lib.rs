//! The results of rdmascope where people already look: in Wireshark, and in files.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`annotated`] | the same capture, with findings and exchanges as packet comments |
//! | [`metrics`] | Prometheus metrics of a live analysis, over HTTP |
//! | [`payloads`] | the files that READ and WRITE moved |
//! | [`wireshark`] | the Lua plugin for Wireshark |
#![forbid(unsafe_code)]

pub mod annotated;
#[cfg(unix)]
pub mod metrics;
pub mod payloads;
pub mod wireshark;
