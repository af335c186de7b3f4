#![no_main]
//! See `packtrain_stores::fuzzing::s3_profile`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::s3_profile(data));
