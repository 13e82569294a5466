//! What the cluster remembers, by class: so far `session`, memory-only state with leases (the paper's SSM).
//! Everything here is a machine: it is told the time and what happened, and answers with what it wants done.
//! Services, clones and outside protocols are unknown here.
#![cfg_attr(test, allow(clippy::unwrap_used))]

#[cfg(test)]
extern crate self as state;

#[cfg(test)]
#[path = "../../../tests/fixtures/kept.rs"]
mod kept;

pub mod hash;
pub mod linear;
pub mod namespace;
pub mod session;

pub use namespace::{Class, NamespaceSpec};
