//! Who somebody is: `password.rs` compares passwords, `sasl.rs` reads how they come, `guess.rs` counts those that
//! were wrong.

pub mod guess;
pub mod password;
pub mod sasl;
