#![no_main]
//! See `rdmascope_dissector::fuzzing::fuzz_create_contexts`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_dissector::fuzzing::fuzz_create_contexts(data));
