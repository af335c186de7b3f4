#![no_main]
//! See `packtrain_runtime::fuzzing::session_request`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::session_request(data));
