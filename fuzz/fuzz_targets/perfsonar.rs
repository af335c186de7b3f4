#![no_main]
//! See `packtrain_client::fuzzing::perfsonar`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::perfsonar(data));
