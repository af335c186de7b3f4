#![no_main]
//! See `packtrain_node::fuzzing::session_request`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::session_request(data));
