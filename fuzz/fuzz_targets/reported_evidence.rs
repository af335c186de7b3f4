#![no_main]
//! See `packtrain_diagnose::fuzzing::reported_evidence`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::product::reported_evidence(data));
