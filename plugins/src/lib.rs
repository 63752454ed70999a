//! The results of rdmascope where people already look: in Wireshark, and in files.
//!
//! | module | what it makes |
//! | --- | --- |
//! | [`annotated`] | the same capture, with findings and exchanges as packet comments |
//! | [`payloads`] | the files that READ and WRITE moved |
//! | [`wireshark`] | the Lua plugin for Wireshark |
#![forbid(unsafe_code)]

pub mod annotated;
pub mod payloads;
pub mod wireshark;
