#![no_main]
//! See `packtrain_client::fuzzing::bootstrap_line`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::bootstrap_line(data));
