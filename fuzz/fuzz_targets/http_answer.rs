#![no_main]
//! See `packtrain_stores::fuzzing::http_answer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::http_answer(data));
