//! Lua scripts of class `linear`: `EVAL` and its kin. A door sends a script with its arguments to the leader of the shard of its
//! keys, as one step; that leader lends a draft of the shard (`linear/src/script.rs`) to this module, on its node.
//!
//! - `request.rs`: what a door sends. `texts.rs`: scripts that a node has heard; those that were loaded are kept in the shard
//!   (`linear/src/texts.rs`). `library.rs`: libraries of functions.
//! - `desk.rs`: the threads that run scripts, and the door inside of them, whose commands are those of every door.
//! - `harm.rs`: scripts that were at work when their node ended, of which none may do so twice.
//! - `vm.rs`, `prelude.lua`: a Lua state for a namespace, and what scripts may not do with it. `convert.rs`: values either way.
//! - `cjson.rs`, `cmsgpack.rs`, `structs.rs`, `bits.rs`, `pattern.rs`: libraries that scripts find with Redis, and Lua's patterns,
//!   of which none takes longer than its caller waits.
//!
//! Scripts run on threads of their own: neither the node's core nor the doors wait for them. A script may take [`limits::TIME_MAX`].

mod bits;
mod cjson;
mod cmsgpack;
mod convert;
pub mod desk;
mod harm;
pub mod library;
pub mod limits;
mod pattern;
pub mod request;
mod structs;
pub mod texts;
mod vm;

pub use desk::ScriptDesk;

#[cfg(test)]
pub mod tests;
