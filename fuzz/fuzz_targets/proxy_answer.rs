#![no_main]
//! See `packtrain_node::fuzzing::proxy_answer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::proxy_answer(data));
