//! The SDK against nodes that act by script. One program holds all, so that it is linked once.
#![allow(clippy::unwrap_used)]

mod certificates;
mod ends;
mod ledger;
mod linear;
mod objects;
mod queue;
mod scripted;
mod soft;
mod stage;
mod tcp;
