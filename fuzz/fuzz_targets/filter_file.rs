#![no_main]
//! See `packtrain_fuzz::filter_file`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::filter_file(data));
