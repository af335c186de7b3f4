#![no_main]
//! See `packtrain_runtime::fuzzing::query_answer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::query_answer(data));
