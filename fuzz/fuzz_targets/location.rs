#![no_main]
//! See `packtrain_fuzz::location`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::location(data));
