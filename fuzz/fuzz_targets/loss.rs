#![no_main]
//! See `packtrain_fuzz::loss::loss`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::loss::loss(data));
