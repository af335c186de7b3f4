#![no_main]
//! See `packtrain_fuzz::authorized_keys`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::authorized_keys(data));
