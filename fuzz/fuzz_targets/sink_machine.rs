#![no_main]
//! See `packtrain_fuzz::machines`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| packtrain_fuzz::machines::sink_machine(data));
