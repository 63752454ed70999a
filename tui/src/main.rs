//! The `rdmascope` command.
#![forbid(unsafe_code)]

fn main() {}
