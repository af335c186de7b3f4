#![no_main]
//! See `packtrain_node::fuzzing::ticket_file`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::ticket_file(data));
