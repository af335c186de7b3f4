#![no_main]
//! See `packtrain_fuzz::packet`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::packet(data));
