#![no_main]
//! See `packtrain_stores::fuzzing::s3_document`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::s3_document(data));
