#![no_main]
//! See `packtrain_stores::fuzzing::proxy_answer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::proxy_answer(data));
