//! See the README of this crate.
#![forbid(unsafe_code)]
