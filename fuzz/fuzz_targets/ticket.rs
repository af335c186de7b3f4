#![no_main]
//! See `packtrain_fuzz::ticket`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::ticket(data));
