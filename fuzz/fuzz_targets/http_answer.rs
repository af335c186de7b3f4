#![no_main]
//! See `packtrain_node::fuzzing::http_answer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::http_answer(data));
