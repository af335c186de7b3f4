#![no_main]
//! See `packtrain_fuzz::scenario`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::scenario(data));
