#![no_main]
//! See `packtrain_node::fuzzing::s3_profile`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::s3_profile(data));
