#![no_main]
//! See `packtrain_fuzz::spool`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::spool::spool(data));
