#![no_main]
//! See `rdmascope_replay::fuzzing::fuzz_peer`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_replay::fuzzing::fuzz_peer(data));
