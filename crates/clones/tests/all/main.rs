//! Managers and groups of several nodes together, and the page of keys. One program holds them all.
#![allow(clippy::unwrap_used)]

mod cluster;
mod configuration;
mod heal;
mod versions;
