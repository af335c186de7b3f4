#![no_main]
//! See `packtrain_runtime::fuzzing::reported_json`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::reported_json(data));
