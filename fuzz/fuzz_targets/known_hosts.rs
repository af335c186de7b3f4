#![no_main]
//! See `packtrain_identity::fuzzing::known_hosts`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::known_hosts(data));
