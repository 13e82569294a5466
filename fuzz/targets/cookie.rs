//! `cargo fuzz run cookie`: see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("cookie", data));
