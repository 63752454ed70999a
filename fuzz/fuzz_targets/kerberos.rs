#![no_main]
//! See `rdmascope_replay::fuzzing::fuzz_kerberos`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_replay::fuzzing::fuzz_kerberos(data));
