#![no_main]
//! See `packtrain_fuzz::journal`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::journal(data));
