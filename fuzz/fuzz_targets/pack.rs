#![no_main]
//! See `packtrain_runtime::fuzzing::pack`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::pack(data));
