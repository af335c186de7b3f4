#![no_main]
//! See `packtrain_node::fuzzing::stream_frames`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::stream_frames(data));
