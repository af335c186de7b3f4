#![no_main]
//! See `packtrain_fuzz::control`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::control(data));
