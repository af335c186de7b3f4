#![no_main]
//! See `packtrain_client::fuzzing::completion_names`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::completion_names(data));
