#![no_main]
//! See `packtrain_perf::fuzzing::perf_word`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::perf_word(data));
