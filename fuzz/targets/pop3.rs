//! `cargo fuzz run pop3`: see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("pop3", data));
