#![no_main]
//! See `rdmascope_capture::fuzzing::fuzz_capture_file`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_capture::fuzzing::fuzz_capture_file(data));
