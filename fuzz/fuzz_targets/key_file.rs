#![no_main]
//! See `rdmascope_analyzer::fuzzing::fuzz_key_file`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_analyzer::fuzzing::fuzz_key_file(data));
