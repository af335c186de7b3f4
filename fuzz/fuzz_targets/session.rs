#![no_main]
//! See `packtrain_fuzz::session`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::session::session(data));
