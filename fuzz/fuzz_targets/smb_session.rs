#![no_main]
//! See `rdmascope_analyzer::fuzzing::fuzz_smb_session`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| rdmascope_analyzer::fuzzing::fuzz_smb_session(data));
