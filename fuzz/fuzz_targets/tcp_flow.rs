#![no_main]
//! See `rdmascope_analyzer::fuzzing::fuzz_tcp_flow`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_analyzer::fuzzing::fuzz_tcp_flow(data));
