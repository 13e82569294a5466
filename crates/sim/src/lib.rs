//! The fake world: whole nodes in virtual time from one seed.
//!
//! `world` carries out the effects of any [`base::Machine`], with a network, disks, clocks and child processes that
//! fail as told. What is built on it, in this order: which faults come when, load with its history, the promises that
//! are checked against both, and the scene that runs the shipped node. The same seed gives the same run, to the byte.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod faults;
pub mod growth;
pub mod history;
pub mod liar;
pub mod operator;
pub mod pace;
pub mod plays;
pub mod porcupine;
pub mod promises;
pub mod scene;
pub mod shipped;
pub mod stage;
pub mod world;
