#![no_main]
//! See `packtrain_node::fuzzing::s3_document`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::node::s3_document(data));
