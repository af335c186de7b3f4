#![no_main]
//! See `packtrain_fuzz::loss::loss_model`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::loss::loss_model(data));
