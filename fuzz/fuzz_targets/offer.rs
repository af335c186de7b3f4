#![no_main]
//! See `packtrain_runtime::fuzzing::offer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::offer(data));
