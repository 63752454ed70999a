#![no_main]
//! See `rdmascope_replay::fuzzing::fuzz_roce_receiver`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_replay::fuzzing::fuzz_roce_receiver(data));
