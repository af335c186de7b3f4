#![no_main]
//! See `packtrain_node::fuzzing::ssh_marker`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::ssh_marker(data));
