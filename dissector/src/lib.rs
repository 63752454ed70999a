#![forbid(unsafe_code)]
#![no_std]
//! See the README of this crate.
extern crate alloc;
