#![no_main]
//! See `packtrain_fuzz::udt4::udt4`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::udt4::udt4(data));
