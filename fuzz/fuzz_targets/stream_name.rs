#![no_main]
//! See `packtrain_runtime::fuzzing::stream_name`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::stream_name(data));
