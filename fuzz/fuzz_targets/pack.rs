#![no_main]
//! See `packtrain_node::fuzzing::pack`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::pack(data));
