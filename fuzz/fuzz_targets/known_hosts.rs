#![no_main]
//! See `packtrain_node::fuzzing::known_hosts`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::known_hosts(data));
