#![no_main]
//! See `packtrain_fuzz::sabul::sabul`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::sabul::sabul(data));
