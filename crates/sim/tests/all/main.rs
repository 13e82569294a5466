//! The simulator's own tests: it finds what is planted, and its runs of a kind. One program holds them all.
#![allow(clippy::unwrap_used)]

mod asking;
mod away;
mod calm;
mod leave;
mod planted;
mod power;
mod scale;
