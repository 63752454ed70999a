#![no_main]
//! See `rdmascope_analyzer::fuzzing::fuzz_pipeline`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_analyzer::fuzzing::fuzz_pipeline(data));
