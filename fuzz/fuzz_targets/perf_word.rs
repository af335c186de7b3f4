#![no_main]
//! See `packtrain_node::fuzzing::perf_word`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::perf_word(data));
