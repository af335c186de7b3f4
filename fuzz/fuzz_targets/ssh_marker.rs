#![no_main]
//! See `packtrain_runtime::fuzzing::ssh_marker`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::ssh_marker(data));
