#![no_main]
//! See `packtrain_identity::fuzzing::ticket_file`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::ticket_file(data));
