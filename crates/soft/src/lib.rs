//! The class `soft`: collections that every node has whole, writes where it is asked, and joins with what the others have.
//! Each update is a dot; a join needs no order and no exactly-once from the links, which drop, double and reorder.
//! Here so far: what is joined. Commands, pushes, repair and collection stand on it.

pub mod cell;
pub mod context;
pub mod dot;
pub mod limits;

#[cfg(test)]
mod join_tests;
