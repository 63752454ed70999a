#![no_main]
//! See `rdmascope_replay::fuzzing::fuzz_roce_cm`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_replay::fuzzing::fuzz_roce_cm(data));
