#![no_main]
//! See `packtrain_fuzz::manifest`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::manifest(data));
