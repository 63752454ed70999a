#![no_main]
//! See `rdmascope_share::fuzzing::fuzz_anonymize`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_share::fuzzing::fuzz_anonymize(data));
