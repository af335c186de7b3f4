#![no_main]
//! See `packtrain_node::fuzzing::reported_json`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::reported_json(data));
