#![no_main]
//! See `packtrain_node::fuzzing::perfsonar`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::perfsonar(data));
