#![no_main]
//! See `packtrain_fuzz::samples`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::samples(data));
