#![no_main]
//! See `rdmascope_share::fuzzing::fuzz_canaries`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(rdmascope_share::fuzzing::fuzz_canaries(data)));
