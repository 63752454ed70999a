//! The results of rdmascope for other tools: in Wireshark, and in files.
//!
//! | module | output |
//! | --- | --- |
//! | [`annotated`] | the same capture, with findings and exchanges as packet comments |
//! | [`metrics`] | Prometheus metrics of a live analysis, over HTTP |
//! | [`payloads`] | the files that READ and WRITE moved |
//! | `tables` | Parquet, with the feature `parquet` |
//! | [`wireshark`] | the Lua plugin for Wireshark |
#![forbid(unsafe_code)]

pub mod annotated;
pub mod metrics;
pub mod payloads;
#[cfg(feature = "parquet")]
pub mod tables;
pub mod wireshark;
