//! See the README of this crate.
#![deny(unsafe_code)]
