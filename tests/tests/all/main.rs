//! End-to-end tests: the real program, real clients, real faults. One program holds them all, so that they are linked once and
//! those that only wait do so beside each other. A new test is a file in `beside`, or in `alone` if it judges times or load.
#![allow(clippy::unwrap_used)]

mod alone;
mod beside;
