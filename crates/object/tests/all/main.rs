//! What class `object` promises, in virtual time. One program holds it all, so that it is linked once.
#![allow(clippy::unwrap_used)]

mod graves;
mod large;
mod owners;
mod packs;
mod planted;
mod promises;
mod stories;
mod watch;
mod world;
