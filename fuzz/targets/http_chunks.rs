//! `cargo fuzz run http_chunks`: see the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("http_chunks", data));
