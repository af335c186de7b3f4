#![no_main]
//! See `packtrain_node::fuzzing::offer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::offer(data));
