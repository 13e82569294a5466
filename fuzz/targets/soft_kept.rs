//! `cargo fuzz run soft_kept`: see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("soft_kept", data));
