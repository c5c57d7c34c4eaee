#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keylatch_fuzz::state_word::run(bytes));
